/** Each client is taken by its type, without a cast. Compiled, and never run. */
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster, createSentinel } from 'redis';
import { Leasehold } from '../src/index.js';

export const takes = (): Leasehold[] => [
  new Leasehold(new Redis()),
  new Leasehold(new Cluster([])),
  new Leasehold(createClient()),
  new Leasehold(createCluster({ rootNodes: [] })),
  new Leasehold(createSentinel({ name: 'primary', sentinelRootNodes: [] })),
];

// @ts-expect-error
export const refuses = () => new Leasehold({});
