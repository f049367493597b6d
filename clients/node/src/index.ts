export type {
  Client,
  Ioredis,
  IoredisCluster,
  NodeRedis,
  NodeRedisCluster,
  NodeRedisSentinel,
} from './adapters/shapes.js';
export { Detached } from './detached.js';
export { Election, type Leader, Leadership, type ObserveOptions } from './election.js';
export * from './errors.js';
export type { LockEvent } from './events.js';
export type { CommandWord, Reply } from './guard.js';
export type { Contention, HolderInfo, LockInfo, LogEntry, WaiterInfo } from './info.js';
export type { Lease } from './lease.js';
export type { Extended, Released } from './hold.js';
export { Leasehold } from './leasehold.js';
export type { Lock, Work } from './lock.js';
export { Quorum, type QuorumOptions, type QuorumTryOptions } from './quorum.js';
export type { Replicas } from './replicas.js';
export type { AcquireOptions, Name, Settings, TryOptions } from './settings.js';
export type { Trouble } from './trouble.js';
