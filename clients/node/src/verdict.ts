/** What an error means for whoever asked. */
import {
  AuthenticationError,
  LeaseholdError,
  OutOfMemoryError,
  PermissionError,
  QueueFullError,
  ReadOnlyError,
  RefusedError,
  UnreachableError,
  WrongTypeError,
} from './errors.js';

export type Verdict =
  /** Nobody knows whether the request was heard. */
  | 'broken'
  /** This server does not grant locks any more. */
  | 'elsewhere'
  /** In a moment it may be different. */
  | 'again'
  /** A newer request of the same owner took the place in the queue. */
  | 'replaced'
  | 'unknown command'
  | 'unknown script'
  /** It has the module by now, which it had not. */
  | 'has the module'
  /** Another try would come to the same. */
  | 'refused';

/** The client library follows MOVED and ASK by itself, and gives up after a while. */
const AGAIN = new Set('TRYAGAIN LOADING CLUSTERDOWN MASTERDOWN BUSY QUEUEFULL NOREPLICAS MISCONF MOVED ASK'.split(' '));

const TYPES: Record<string, typeof RefusedError> = {
  NOPERM: PermissionError,
  NOAUTH: AuthenticationError,
  WRONGPASS: AuthenticationError,
  OOM: OutOfMemoryError,
  READONLY: ReadOnlyError,
  QUEUEFULL: QueueFullError,
  WRONGTYPE: WrongTypeError,
};

/**
 * The error code that a server's error begins with. Errors of sockets and of client libraries have none. Redis 6.2 wraps
 * the error of a command that a script calls.
 */
export function codeOf(error: unknown): string | undefined {
  return /^(?:ERR Error running script .*?: -)?([A-Z][A-Z0-9]+) /.exec(messageOf(error))?.[1];
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function verdict(error: unknown): Verdict {
  if (error instanceof LeaseholdError) return 'refused';
  const code = codeOf(error);
  if (code === undefined) return 'broken';
  if (code === 'READONLY' || code === 'UNBLOCKED') return 'elsewhere';
  if (AGAIN.has(code)) return 'again';
  if (code === 'REPLACED') return 'replaced';
  if (code === 'NOSCRIPT') return 'unknown script';
  if (code === 'LEASEHOLD') return 'has the module';
  if (code === 'ERR' && / unknown command /.test(messageOf(error))) return 'unknown command';
  if (code === 'ERR' && / max number of clients reached/.test(messageOf(error))) return 'again';
  return 'refused';
}

/** Whether a server refused because it is not ready: a later try may succeed. */
export function mayPass(error: unknown): boolean {
  return error instanceof RefusedError && AGAIN.has(error.code);
}

/** What the caller is told when no more tries are made. `trouble` is why the client library is not connected, if it is so. */
export function told(error: unknown, trouble?: unknown): LeaseholdError {
  if (error instanceof LeaseholdError) return error;
  const code = codeOf(error);
  if (code === undefined) {
    // The handshake of a connection was refused, and the client library says it in words of its own.
    const cause = error instanceof Error ? error.cause : undefined;
    if (codeOf(cause) !== undefined) return told(cause);
    if (trouble !== undefined && verdict(trouble) === 'refused') return told(trouble);
    const because = trouble === undefined ? '' : `: ${describe(trouble)}`;
    const message = `no server that grants locks: ${describe(error)}${because}`;
    return new UnreachableError(message, { cause: trouble ?? error });
  }
  const Type = TYPES[code] ?? RefusedError;
  return new Type(code, messageOf(error), { cause: error });
}

export function closedClient(trouble: unknown): LeaseholdError {
  const because = trouble === undefined ? '' : `: ${describe(trouble)}`;
  return new UnreachableError(`the client of Redis was closed, or not connected yet${because}`, { cause: trouble });
}

export function isRefused(error: LeaseholdError): boolean {
  return error instanceof RefusedError && verdict(error.cause) === 'refused';
}

/** An error of several addresses has no text of its own. */
function describe(error: unknown): string {
  if (error instanceof AggregateError) return [...new Set(error.errors.map(describe))].join(', ');
  const code = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? error.name) : 'unknown';
  return messageOf(error) || code;
}

/** The server gives no tickets, or tells this user of no grants, or keeps no place for longer than that. */
export type Refusal = 'no tickets' | 'no channel' | number;

export function refusal(error: unknown): Refusal | undefined {
  const message = messageOf(error);
  const isChannel = codeOf(error) === 'NOPERM' && message.includes('channel');
  if (isChannel || message.startsWith('ERR NOTIFY is not possible')) return 'no channel';
  if (message.startsWith('ERR unknown option')) return 'no tickets';
  const longest = /^ERR TICKET must be an integer from 1 to (\d+)/.exec(message)?.[1];
  return longest === undefined ? undefined : Number(longest);
}
