/** A server of one's own, on a free port of this machine, with nothing on disk. It ends with `stop`, and with the program. */
export interface Server extends AsyncDisposable {
  /** The port that it listens on. */
  readonly port: number;
  /** For clients: `redis://127.0.0.1:…`. */
  readonly url: string;
  /** What the server has said so far. */
  readonly log: string;
  /** Deletes all keys, and so all locks. */
  flush(): Promise<void>;
  /** Ends it. */
  stop(): Promise<void>;
}

/** Starts a server of one's own, with these options of the server behind those that it needs. */
export function start(...options: string[]): Promise<Server>;

/** The path of the module: `LEASEHOLD_MODULE`, or that of this package for this machine. */
export function module(): string;

/** The path of the server: `LEASEHOLD_SERVER`, that of this package for this machine, or what is in `PATH`. */
export function server(): string;
