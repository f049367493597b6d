/** What is asked of a server about a lock, in the commands of the module. */
import type { Word } from './connection.js';

/** How many holders at a time a hold tolerates, itself included; 0: any number. */
export type Share = number;

export const EXCLUSIVE: Share = 1;

export const ANY: Share = 0;

export interface Claim {
  readonly key: Word;
  /** What is wanted with it: all or nothing. */
  readonly also: readonly Word[];
  readonly owner: string;
  readonly share: Share;
  /** Held as long as a connection, and so many milliseconds longer. */
  readonly grace?: number | undefined;
}

export type Question =
  | { ask: 'acquire'; ttl: number }
  /** Waits in the queue on a connection of its own. */
  | { ask: 'wait'; ttl: number; patience: number }
  /** Keeps a place in the queue for so long, without a connection that waits. The grant is told of on the channel. */
  | { ask: 'ticket'; ttl: number; kept: number; channel: string | undefined }
  | { ask: 'extend'; ttl: number; fence?: number | undefined }
  /** Has it by a larger fence: where several servers are to have one. */
  | { ask: 'raise'; fence: number }
  /** Without a fence: whatever the owner was granted, and its place in the queue. */
  | { ask: 'release'; fence?: number | undefined };

/** Whether it is asked on the connection that the hold is bound to. One that waits is closed after that. */
export function binds({ grace }: Claim, { ask }: Pick<Question, 'ask'>): boolean {
  return grace !== undefined && (ask === 'acquire' || ask === 'ticket');
}

export function words({ key, owner, share, grace, also }: Claim, question: Question): Word[] {
  const command = spelt(key, owner, question);
  const acquires = 'ttl' in question && question.ask !== 'extend';
  if (acquires && share !== EXCLUSIVE) command.push('SHARE', String(share));
  if (grace !== undefined && acquires && question.ask !== 'wait') command.push('EPHEMERAL', millis(grace));
  if (also.length > 0) command.push('ALSO', String(also.length), ...also);
  return command;
}

function spelt(key: Word, owner: string, question: Question): Word[] {
  switch (question.ask) {
    case 'acquire':
      return ['LOCK.ACQUIRE', key, owner, millis(question.ttl)];
    case 'wait':
      return ['LOCK.ACQUIRE', key, owner, millis(question.ttl), 'BLOCK', millis(question.patience)];
    case 'ticket': {
      const { ttl, kept, channel } = question;
      const notify = channel === undefined ? [] : ['NOTIFY', channel];
      return ['LOCK.ACQUIRE', key, owner, millis(ttl), 'TICKET', millis(kept), ...notify];
    }
    case 'extend':
      return fenced(['LOCK.EXTEND', key, owner, millis(question.ttl)], question.fence);
    case 'raise':
      return ['LOCK.RAISE', key, owner, String(question.fence)];
    case 'release':
      return fenced(['LOCK.RELEASE', key, owner], question.fence);
  }
}

function fenced(command: Word[], fence: number | undefined): Word[] {
  if (fence !== undefined) command.push(String(fence));
  return command;
}

/** Servers take whole milliseconds. */
export function millis(ms: number): string {
  return String(Math.ceil(ms));
}
