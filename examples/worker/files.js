/**
 * The files of the customers, each a hash: `last` is the number of the last invoice, `invoice:7` the seventh one, and
 * `fence` the largest fence that was seen. Numbers have no gaps, and nobody is invoiced twice for a job.
 */
import { defineScript } from 'redis';

export const JOBS = 'jobs';
export const WORKERS = 'workers';

/** A script is run as a whole: nobody reads or writes between its lines. Fences are below 2^53, as Lua counts exactly. */
const IS_LATE = `tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1])`;

const numbers = (value) => (value === null ? null : Number(value));

const keys = (parser, customer) => {
  parser.pushKey(`file:${customer}`);
  parser.pushKey(JOBS);
};

export const scripts = {
  /**
   * The number of the last invoice; null if the job is done already or the fence is not the newest. It stores the fence:
   * from then on no write with an older one is taken.
   */
  openFile: defineScript({
    NUMBER_OF_KEYS: 2,
    SCRIPT: `
      if ${IS_LATE} or #redis.call('XPENDING', KEYS[2], ARGV[2], ARGV[3], ARGV[3], 1) == 0 then return nil end
      redis.call('HSET', KEYS[1], 'fence', ARGV[1])
      return tonumber(redis.call('HGET', KEYS[1], 'last') or 0)`,
    parseCommand(parser, customer, fence, job) {
      keys(parser, customer);
      parser.push(String(fence), WORKERS, job);
    },
    transformReply: numbers,
  }),

  /** Files the invoice, and the job is done, in one step: 1; or neither, if a newer fence has been stored meanwhile: 0. */
  file: defineScript({
    NUMBER_OF_KEYS: 2,
    SCRIPT: `
      if ${IS_LATE} or redis.call('XACK', KEYS[2], ARGV[2], ARGV[3]) == 0 then return 0 end
      redis.call('HSET', KEYS[1], 'last', ARGV[4], 'invoice:' .. ARGV[4], ARGV[5])
      return 1`,
    parseCommand(parser, customer, fence, job, number, invoice) {
      keys(parser, customer);
      parser.push(String(fence), WORKERS, job, String(number), invoice);
    },
    transformReply: numbers,
  }),
};
