/** Each client is taken by its type, without a cast. Compiled, and never run. */
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';
import { type AcquireOptions, Leasehold, type LockInfo, type ObserveOptions, type Settings } from '../src/index.js';

export const takes = (): Leasehold[] => [
  new Leasehold(new Redis()),
  new Leasehold(new Cluster([])),
  new Leasehold(createClient()),
  new Leasehold(createCluster({ rootNodes: [] })),
  new Leasehold(createSentinel({ name: 'primary', sentinelRootNodes: [] })),
];

// @ts-expect-error
export const refuses = () => new Leasehold({});

/** What a program may or may not have is handed on as it is. */
export const optional = (signal: AbortSignal | undefined, count: number | undefined) => {
  const options: AcquireOptions = { signal, ttl: count, wait: count, renew: count, holdAtLeast: count };
  const observing: ObserveOptions = { signal, lookEvery: count };
  const settings: Settings = { prefix: undefined, ttl: count, slice: count, onTrouble: undefined };
  return { options, observing, settings };
};

export const printed = (info: LockInfo): string => JSON.stringify(info);
