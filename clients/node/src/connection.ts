/** What the core needs of a client library. There is one adapter for each of them. */

export type Word = string | Buffer;

/** What sends a command to whichever node has the key, and to the primary of it. */
export interface Line {
  send(key: Word, words: readonly Word[]): Promise<unknown>;
}

export interface Connection extends Line {
  /** The same for all keys of a server, and another for those of another one; undefined: it is not known. */
  place(key: Word): object | undefined;

  /** Whether its connections are opened anew when they are lost, so that nothing can be bound to one. */
  readonly opensAnew?: boolean;

  /** A connection of its own to that node, once it is open. It is not opened again when it is lost. */
  dedicated(key: Word): Promise<Dedicated>;

  /** What is sent meanwhile goes out at once. */
  together(key: Word, send: () => void): void;

  /**
   * Subscribes on a connection of its own to the node that has the key, within so many milliseconds. `ended` is called once,
   * when that is lost.
   */
  listen(key: Word, channel: string, limit: number, ear: Ear): Promise<Listening>;

  elsewhere(): void;

  /** Told each time when it is connected anew, perhaps to another server of the same address: unless nobody says so. */
  whenReady(tell: () => void): void;

  /** Closes what was opened beside the program's own client. */
  close(): void;

  /** Why it is not connected; undefined if it is, or if that is not known. */
  trouble(): unknown;

  /** The program has closed its client, so nothing will be answered. */
  isClosed(): boolean;
}

export interface Ear {
  hear(message: Buffer): void;
  ended(): void;
}

/** A connection to one server. It closes at once: what was sent and not answered fails. */
export interface Dedicated extends Line, Listening {
  /** Told when it is lost or closed, or at once if it is; until what this returns is called. */
  whenEnded(tell: () => void): () => void;
}

export interface Listening {
  close(): void;
}

export function closeOnceOpen(opening: Promise<Listening> | undefined): void {
  opening?.then(({ close }) => close()).catch(() => {});
}
