export type {
  Client,
  Ioredis,
  IoredisCluster,
  NodeRedis,
  NodeRedisCluster,
  NodeRedisSentinel,
} from './adapters/shapes.js';
export { Election, type Leader, Leadership, type ObserveOptions } from './election.js';
export {
  AuthenticationError,
  BusyError,
  ClosedError,
  LeaseholdError,
  type Loss,
  LostError,
  OutOfMemoryError,
  PermissionError,
  QueueFullError,
  ReadOnlyError,
  RefusedError,
  SettingError,
  TooLateError,
  UnreachableError,
  WrongTypeError,
} from './errors.js';
export type { LockInfo } from './info.js';
export type { Extended, Lease, Released } from './lease.js';
export { Leasehold } from './leasehold.js';
export type { Lock, Work } from './lock.js';
export type { AcquireOptions, Name, Settings, TryOptions } from './settings.js';
export type { Trouble } from './trouble.js';
