/** What is asked of a server about a lock, in the commands of the module. */
import type { Word } from './connection.js';

/** How many holders at a time a hold tolerates, itself included; 0: any number. */
export type Share = number;

export const EXCLUSIVE: Share = 1;

export type Question =
  | { ask: 'acquire'; owner: string; ttl: number; share: Share }
  /** Waits in the queue on a connection of its own; 0: without limit. */
  | { ask: 'wait'; owner: string; ttl: number; share: Share; patience: number }
  /** Keeps a place in the queue for so long, without a connection that waits. */
  | { ask: 'ticket'; owner: string; ttl: number; share: Share; kept: number; channel: string }
  | { ask: 'extend'; owner: string; ttl: number; fence: bigint }
  /** Without a fence: whatever the owner was granted, and its place in the queue. */
  | { ask: 'release'; owner: string; fence?: bigint };

export function words(key: Buffer, question: Question): Word[] {
  const { owner } = question;
  switch (question.ask) {
    case 'acquire':
      return ['LOCK.ACQUIRE', key, owner, millis(question.ttl), ...shared(question.share)];
    case 'wait':
      return [
        ...['LOCK.ACQUIRE', key, owner, millis(question.ttl), ...shared(question.share)],
        ...['BLOCK', millis(question.patience)],
      ];
    case 'ticket':
      return [
        ...['LOCK.ACQUIRE', key, owner, millis(question.ttl), ...shared(question.share)],
        ...['TICKET', millis(question.kept), 'NOTIFY', question.channel],
      ];
    case 'extend':
      return ['LOCK.EXTEND', key, owner, millis(question.ttl), String(question.fence)];
    case 'release':
      return ['LOCK.RELEASE', key, owner, ...(question.fence === undefined ? [] : [String(question.fence)])];
  }
}

function shared(share: Share): Word[] {
  return share === EXCLUSIVE ? [] : ['SHARE', String(share)];
}

/** Servers take whole milliseconds. */
export function millis(ms: number): string {
  return String(Math.ceil(ms));
}
