/**
 * A shop whose jobs BullMQ runs. The lock of an order is taken where the order is placed, goes along with the job, and is
 * released by the worker that has done it: nobody changes the order in between. Jobs of one customer run one at a time,
 * although the queue has many workers.
 */
import { Queue, Worker } from 'bullmq';
import { Leasehold } from 'leasehold';

export const QUEUE = 'orders';

/** How long an order may wait for a worker. */
const PATIENCE = 3_600_000;

export class Shop {
  #locks;
  #queue;

  constructor(redis) {
    this.#locks = new Leasehold(redis);
    this.#queue = new Queue(QUEUE, { connection: redis });
  }

  /** Null: somebody is changing this order, or it is being packed. */
  async place(order, customer) {
    const lease = await this.#locks.tryAcquire(`order:${order}`, { ttl: PATIENCE, renew: false });
    if (lease === null) return null;
    try {
      return await this.#queue.add(
        'pack',
        { order, customer, lease: String(lease.detach()) },
        { removeOnComplete: true },
      );
    } catch (error) {
      await (await this.#locks.adopt(lease.detach())).release();
      throw error;
    }
  }

  async close() {
    await this.#queue.close();
    await this.#locks.close();
  }
}

/** `pack(job, fence, signal)` does the work; its database refuses a fence smaller than one that it has seen. */
export function packer(redis, pack, options = {}) {
  const locks = new Leasehold(redis);
  const worker = new Worker(
    QUEUE,
    async ({ data }) => {
      const lease = await locks.adopt(data.lease);
      try {
        return await locks.with(`customer:${data.customer}`, ({ signal }) =>
          pack(data, lease.fence, AbortSignal.any([signal, lease.signal])),
        );
      } finally {
        await lease.release();
      }
    },
    { connection: redis, concurrency: 10, ...options },
  );
  const close = async () => {
    await worker.close();
    await locks.close();
  };
  return { worker, close };
}
