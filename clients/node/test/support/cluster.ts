/** A cluster of three nodes, without replicas. */
import { eventually } from './eventually.js';
import { freePort, TestServer } from './server.js';

const SLOTS = 16_384;

export class TestCluster {
  private constructor(readonly nodes: readonly TestServer[]) {}

  static async start(): Promise<TestCluster> {
    // The port of the bus is 10,000 above, unless it is said otherwise.
    const nodes = await Promise.all(
      [0, 1, 2].map(async () => {
        const bus = await freePort();
        return TestServer.start({ tcp: true, config: ['--cluster-enabled', 'yes', '--cluster-port', String(bus)] });
      }),
    );
    const cluster = new TestCluster(nodes);
    const [first] = nodes;
    for (const [number, node] of nodes.entries()) {
      const [from, to] = [number, number + 1].map((part) => Math.floor((SLOTS * part) / nodes.length));
      await node.call('CLUSTER', 'ADDSLOTSRANGE', from ?? 0, (to ?? 0) - 1);
      const bus = /cluster-port\s+(\d+)/.exec(
        String(await node.call('CONFIG', 'GET', 'cluster-port')).replace(',', ' '),
      );
      await first?.call('CLUSTER', 'MEET', '127.0.0.1', node.port, bus?.[1] ?? '');
    }
    const isWhole = async (node: TestServer) => {
      const info = (await node.call('CLUSTER', 'INFO')) as string;
      return info.includes('cluster_state:ok') && info.includes('cluster_known_nodes:3');
    };
    for (const node of nodes) await eventually(() => isWhole(node), 30_000);
    return cluster;
  }

  async nodeOf(key: string): Promise<TestServer> {
    for (const node of this.nodes) {
      const isIts = await node.call('EXISTS', key).catch(() => undefined);
      if (isIts !== undefined) return node;
    }
    throw new Error(`no node has ${key}`);
  }

  /** Moves the slot of a key to another node, with what is in it. */
  async move(key: string): Promise<void> {
    const from = await this.nodeOf(key);
    const to = this.nodes.find((node) => node !== from);
    if (to === undefined) throw new Error('there is one node');
    const slot = (await from.call('CLUSTER', 'KEYSLOT', key)) as number;
    const [fromId, toId] = await Promise.all([from, to].map((node) => node.call('CLUSTER', 'MYID') as Promise<string>));
    await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId ?? '');
    await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId ?? '');
    const keys = (await from.call('CLUSTER', 'GETKEYSINSLOT', slot, 1_000)) as string[];
    for (const one of keys) await from.call('MIGRATE', '127.0.0.1', to.port, one, 0, 5_000);
    for (const node of [to, from, ...this.nodes]) await node.call('CLUSTER', 'SETSLOT', slot, 'NODE', toId ?? '');
  }

  async stop(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }
}
