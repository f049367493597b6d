/** Stands between a client and a server, and cuts or silences their connections. */
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { TestServer } from './server.js';

let number = 0;

export class Gate {
  readonly socket: string;
  readonly #pairs = new Set<[Socket, Socket]>();
  readonly #listener: Server;
  #refuses = false;
  #ignores = false;

  private constructor(server: TestServer) {
    this.socket = join(server.directory, `gate-${number++}`);
    this.#listener = createServer((near) => {
      if (this.#refuses) return near.destroy();
      if (this.#ignores) return near.on('error', () => {}).resume();
      const far = createConnection(server.socket);
      const pair: [Socket, Socket] = [near, far];
      this.#pairs.add(pair);
      const end = () => {
        this.#pairs.delete(pair);
        near.destroy();
        far.destroy();
      };
      for (const socket of pair) socket.on('error', end).on('close', end);
      near.pipe(far).pipe(near);
      return undefined;
    });
  }

  static async start(server: TestServer): Promise<Gate> {
    const gate = new Gate(server);
    await new Promise<void>((resolve) => gate.#listener.listen(gate.socket, resolve));
    return gate;
  }

  /** Ends all connections, and those that are made. */
  cut(): void {
    this.#refuses = true;
    for (const [near, far] of this.#pairs) {
      near.destroy();
      far.destroy();
    }
  }

  /** What the server says on the connections that there are is lost. What it is told is not. */
  deafen(): void {
    for (const [near, far] of this.#pairs) far.unpipe(near).resume();
  }

  /** Connections that are made from now on are accepted, and nothing is ever said on them. */
  ignore(): void {
    this.#ignores = true;
  }

  mend(): void {
    this.#refuses = false;
    this.#ignores = false;
  }

  stop(): void {
    this.cut();
    this.#listener.close();
  }
}
