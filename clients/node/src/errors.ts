/** What can go wrong. That somebody else has the lock is no error, unless one was to wait for it. */

const WHY = {
  /** The lease has run out, or could have, before it was renewed. */
  expired: 'its lease could have ended',
  /** The server says that it is not this lease's: it was deleted, or somebody else has it. */
  taken: 'the server says that it is not held',
  /** It was released, or detached. */
  released: 'it was released',
  /** The client was closed, and gave the lock back. */
  closed: 'the client was closed',
};

/** Why a lease holds nothing any more. */
export type Loss = keyof typeof WHY;

/** Every error of this package. */
export class LeaseholdError extends Error {
  override name = 'LeaseholdError';
}

/** A setting has no sense. */
export class SettingError extends LeaseholdError {
  override name = 'SettingError';
  constructor(
    readonly setting: string,
    reason: string,
  ) {
    super(`${setting}: ${reason}`);
  }
}

/** Others had the lock for as long as one was ready to wait. */
export class BusyError extends LeaseholdError {
  override name = 'BusyError';
  constructor(
    readonly lock: string,
    readonly waited: number,
  ) {
    super(`the lock ${lock} was held by others for ${Math.round(waited)} ms`);
  }
}

/** Nobody answered in time, or nobody who may grant locks. */
export class UnreachableError extends LeaseholdError {
  override name = 'UnreachableError';
}

/** The lock was granted, and the answer came when the lease had run out. */
export class TooLateError extends LeaseholdError {
  override name = 'TooLateError';
  constructor(readonly lock: string) {
    super(`the lock ${lock} was granted, and its lease over when the answer came`);
  }
}

/** Fewer replicas than were asked for have the grant in time, and the lock was given back. */
export class TooFewReplicasError extends LeaseholdError {
  override name = 'TooFewReplicasError';
  constructor(
    readonly lock: string,
    readonly acknowledged: number,
    readonly wanted: number,
  ) {
    super(`of ${wanted} replicas that were to have the lock ${lock}, ${acknowledged} said so in time`);
  }
}

/** The reason of the signal of a lease that was lost. */
export class LostError extends LeaseholdError {
  override name = 'LostError';
  constructor(
    readonly lock: string,
    readonly loss: Loss,
    /** What the last try to renew it came to. */
    cause?: Error,
  ) {
    const because = cause === undefined ? '' : `: ${cause.message}`;
    super(`the lock ${lock} is lost: ${WHY[loss]}${because}`, cause === undefined ? {} : { cause });
  }
}

/** Nobody knows what the server did: its reply was none of those to the command. In a transaction it is `QUEUED`. */
export class SurpriseError extends LeaseholdError {
  override name = 'SurpriseError';
  constructor() {
    super('the server gave a reply of an unexpected type');
  }
}

/** This `Leasehold` was closed. */
export class ClosedError extends LeaseholdError {
  override name = 'ClosedError';
  constructor() {
    super('this Leasehold was closed');
  }
}

/** The server answered with an error that another try would not mend, or that all tries came to. */
export class RefusedError extends LeaseholdError {
  override name = 'RefusedError';
  constructor(
    /** The first word of the server's error, such as `NOPERM`. */
    readonly code: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A command was sent, and nobody knows whether it was run: it is not sent again. */
export class UnansweredError extends LeaseholdError {
  override name = 'UnansweredError';
}

/** The server does not have the module, which this feature is of. */
export class NeedsModuleError extends RefusedError {
  override name = 'NeedsModuleError';
  constructor(feature: string) {
    super('MODULE', `${feature} needs the module, which this server does not have`);
  }
}

/** The user may not run the command, or not on this key: `NOPERM`. */
export class PermissionError extends RefusedError {
  override name = 'PermissionError';
}

/** The password is wrong, or there is none: `WRONGPASS`, `NOAUTH`. */
export class AuthenticationError extends RefusedError {
  override name = 'AuthenticationError';
}

/** The server is above its `maxmemory`: `OOM`. */
export class OutOfMemoryError extends RefusedError {
  override name = 'OutOfMemoryError';
}

/** The server is a replica: `READONLY`. */
export class ReadOnlyError extends RefusedError {
  override name = 'ReadOnlyError';
}

/** As many wait as may: `QUEUEFULL`. */
export class QueueFullError extends RefusedError {
  override name = 'QueueFullError';
}

/** The key holds something that is no lock: `WRONGTYPE`. */
export class WrongTypeError extends RefusedError {
  override name = 'WrongTypeError';
}
