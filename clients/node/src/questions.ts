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
    case 'wait':
    case 'ticket': {
      const command = ['LOCK.ACQUIRE', key, owner, millis(question.ttl)];
      if (question.share !== EXCLUSIVE) command.push('SHARE', String(question.share));
      if (question.ask === 'wait') command.push('BLOCK', millis(question.patience));
      if (question.ask === 'ticket') command.push('TICKET', millis(question.kept), 'NOTIFY', question.channel);
      return command;
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

/** Servers take whole milliseconds. */
export function millis(ms: number): string {
  return String(Math.ceil(ms));
}
