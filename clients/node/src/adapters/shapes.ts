/**
 * What this package uses of the client libraries. It imports neither, so that each works without the other, in whichever
 * version the program has.
 */

import type { Emitter } from '../whenever.js';

/** `Redis` of ioredis, also with Sentinel. */
export interface Ioredis extends Emitter {
  readonly options: object;
  readonly status: string;
  callBuffer(command: string, ...args: (string | Buffer | number)[]): Promise<unknown>;
  duplicate(override?: object): Ioredis;
  connect(): Promise<void>;
  disconnect(reconnect?: boolean): void;
}

export interface IoredisCluster extends Emitter {
  readonly isCluster: boolean;
  readonly options: object;
  readonly status: string;
  readonly slots: string[][];
  callBuffer(command: string, ...args: (string | Buffer | number)[]): Promise<unknown>;
  nodes(role?: 'all' | 'master' | 'slave'): unknown[];
}

export interface NodeRedis extends Emitter {
  readonly isOpen: boolean;
  sendCommand(args: readonly (string | Buffer)[], options?: object): Promise<unknown>;
}

export interface NodeRedisCluster extends Emitter {
  readonly masters: readonly unknown[];
  readonly slots: readonly unknown[];
  sendCommand(
    key: string | Buffer | undefined,
    isReadonly: boolean | undefined,
    args: (string | Buffer)[],
    options?: object,
  ): Promise<unknown>;
}

export interface NodeRedisSentinel extends Emitter {
  readonly isOpen: boolean;
  getMasterNode(): unknown;
  sendCommand(isReadonly: boolean | undefined, args: (string | Buffer)[], options?: object): Promise<unknown>;
}

/** `GlideClient` and `GlideClusterClient` of Valkey GLIDE. */
export interface Glide {
  customCommand(args: (string | Buffer)[], options?: object): Promise<unknown>;
}

export type Client = Ioredis | IoredisCluster | NodeRedis | NodeRedisCluster | NodeRedisSentinel | Glide;
