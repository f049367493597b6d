// The server in memory of the package for Node, started as a real one is: by its configuration file, which the driver writes. It
// speaks RESP2, and has what the driver looks at, too.
import { readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { now } from '../../../node/dist/esm/clock.js';
import { Memory } from '../../../node/dist/esm/memory.js';

const known = 'bind port unixsocket dir save appendonly repl-diskless-sync repl-diskless-load hz loadmodule'.split(' ');
known.push('enable-debug-command', 'enable-module-command');
const lines = readFileSync(process.argv.at(-1), 'utf8').trim().split('\n');
const settings = Object.fromEntries(lines.map((line) => line.split(/ (.*)/s, 2)));
const unknown = Object.keys(settings).filter((name) => !known.includes(name));
if (unknown.length > 0) {
  console.error(`a server in memory has no ${unknown.join(', ')}`);
  process.exit(1);
}

const memory = new Memory();
const sockets = new Map();
const left = (key) => (memory.locks.get(key) ?? []).map(({ end }) => Math.round(end - now()));
const its = {
  INFO: () => Buffer.from(`process_id:${process.pid}\r\nconnected_clients:${sockets.size}\r\nloading:0\r\n`),
  PTTL: (_, key) => Math.max(-2, ...left(key)),
  PEXPIRE: (_, key, millis) => {
    for (const hold of memory.locks.get(key) ?? []) hold.end = now() + Number(millis);
    return left(key).length > 0 ? 1 : 0;
  },
  CLIENT: (session, word, ...rest) => {
    for (const [each, socket] of sockets) {
      const isIt = word === 'KILL' && rest[0] === 'TYPE' && each.channels.size > 0 === (rest[1] === 'pubsub');
      if (isIt && each !== session) socket.destroy();
    }
    return 'OK';
  },
  PUBSUB: () => [...sockets.keys()].flatMap(({ channels }) => [...channels].map((name) => Buffer.from(name, 'latin1'))),
};
for (const [name, command] of Object.entries(its)) memory.commands.set(name, command);

function serve(socket) {
  const write = (reply) => socket.write(packed(reply));
  const session = memory.open((channel, message) => write([Buffer.from('message'), channel, message]));
  sockets.set(session, socket);
  let rest = Buffer.alloc(0);
  const requests = [];
  let isBusy = false;
  const goOn = async () => {
    if (isBusy) return;
    isBusy = true;
    while (requests.length > 0) write(await memory.run(session, requests.shift()).catch((error) => error));
    isBusy = false;
  };
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data]);
    for (let request = read(rest); request !== undefined; request = read(rest)) {
      requests.push(request.words);
      rest = rest.subarray(request.length);
    }
    goOn();
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    sockets.delete(session);
    memory.end(session);
  });
}

/** The first request, if it is whole. */
function read(data) {
  let at = 0;
  const number = () => {
    const end = data.indexOf('\r\n', at);
    if (end < 0) return undefined;
    const read = Number(data.toString('latin1', at + 1, end));
    at = end + 2;
    return read;
  };
  const count = number();
  const words = [];
  while (count !== undefined && words.length < count) {
    const length = number();
    if (length === undefined || data.length < at + length + 2) return undefined;
    words.push(data.subarray(at, at + length));
    at += length + 2;
  }
  return count === undefined ? undefined : { words, length: at };
}

function packed(reply) {
  const is = (text) => Buffer.from(`${text}\r\n`);
  if (Array.isArray(reply))
    return Buffer.concat([
      is(`*${reply.length}`),
      ...reply.map((each) => packed(typeof each === 'string' ? Buffer.from(each) : each)),
    ]);
  if (Buffer.isBuffer(reply)) return Buffer.concat([is(`$${reply.length}`), reply, is('')]);
  if (reply === null) return is('$-1');
  if (reply instanceof Error) return is(`-${reply.message}`);
  return is(typeof reply === 'number' ? `:${reply}` : `+${reply}`);
}

if (settings.port !== '0') createServer(serve).listen(Number(settings.port), '127.0.0.1');
const socket = JSON.parse(settings.unixsocket);
rmSync(socket, { force: true });
createServer(serve).listen(socket);
