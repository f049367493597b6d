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
  | { ask: 'extend'; owner: string; ttl: number; fence: number }
  /** Without a fence: whatever the owner was granted, and its place in the queue. */
  | { ask: 'release'; owner: string; fence?: number };

export function words(key: Word, question: Question): Word[] {
  const { owner } = question;
  switch (question.ask) {
    case 'acquire':
      return shared(['LOCK.ACQUIRE', key, owner, millis(question.ttl)], question.share);
    case 'wait': {
      const [ttl, patience] = [millis(question.ttl), millis(question.patience)];
      return shared(['LOCK.ACQUIRE', key, owner, ttl, 'BLOCK', patience], question.share);
    }
    case 'ticket': {
      const [ttl, kept] = [millis(question.ttl), millis(question.kept)];
      const command = ['LOCK.ACQUIRE', key, owner, ttl, 'TICKET', kept, 'NOTIFY', question.channel];
      return shared(command, question.share);
    }
    case 'extend':
      return ['LOCK.EXTEND', key, owner, millis(question.ttl), String(question.fence)];
    case 'release': {
      const command = ['LOCK.RELEASE', key, owner];
      if (question.fence !== undefined) command.push(String(question.fence));
      return command;
    }
  }
}

function shared(command: Word[], share: Share): Word[] {
  if (share !== EXCLUSIVE) command.push('SHARE', String(share));
  return command;
}

/** Servers take whole milliseconds. */
export function millis(ms: number): string {
  return String(Math.ceil(ms));
}
