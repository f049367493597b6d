/** Which adapter a client takes, by its shape. */
import type { Connection } from '../connection.js';
import { SettingError } from '../errors.js';
import { GlideConnection } from './glide.js';
import { IoredisConnection } from './ioredis.js';
import { clusterOfNodeRedis, sentinelOfNodeRedis, singleOfNodeRedis } from './node-redis.js';
import type {
  Client,
  Glide,
  Ioredis,
  IoredisCluster,
  NodeRedis,
  NodeRedisCluster,
  NodeRedisSentinel,
} from './shapes.js';

export function connectionOf(client: Client | Connection): Connection {
  const has = (...names: string[]) =>
    typeof client === 'object' && client !== null && names.every((name) => name in client);
  if (has('dedicated', 'listen')) return client as Connection;
  if (has('callBuffer', 'nodes', 'slots')) return new IoredisConnection(client as IoredisCluster);
  if (has('callBuffer', 'duplicate', 'disconnect')) return new IoredisConnection(client as Ioredis);
  if (has('sendCommand', 'masters', 'slots')) return clusterOfNodeRedis(client as NodeRedisCluster);
  if (has('sendCommand', 'getMasterNode')) return sentinelOfNodeRedis(client as NodeRedisSentinel);
  if (has('customCommand', 'config')) return new GlideConnection(client as Glide);
  // A pool has no order among its requests, which this package relies on.
  if (has('sendCommand', 'duplicate', 'isOpen') && !has('totalClients')) return singleOfNodeRedis(client as NodeRedis);
  const kinds =
    'Redis or Cluster of ioredis, createClient, createCluster or createSentinel of node-redis, or a client of Valkey GLIDE';
  throw new SettingError('client', `it must be one of ${kinds}`);
}
