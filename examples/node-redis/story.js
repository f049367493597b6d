// A restaurant books its tables under locks: npm ci && npm start, on a server of `make run`.
import sqlite from 'node-sqlite3-wasm';
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from 'redis';

const URL = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const TTL = Number(process.env.LOCK_TTL_MS ?? 5000);
const SHORT = 600;
const PATIENCE = 10_000;

// --- the lock ----------------------------------------------------------------------------------

const redis = await connected(createClient({ url: URL }));

/** The lock of a table, or null if somebody else has it, for as long as the patience lasts. */
async function acquire(table, ttl, patience = 0, connection = redis) {
  const lock = { key: `lock:table:${table}`, owner: `${process.pid}:${randomUUID()}` };
  const request = ['LOCK.ACQUIRE', lock.key, lock.owner, `${ttl}`];
  const end = performance.now() + patience;
  for (;;) {
    const asked = performance.now();
    lock.fence = await connection.sendCommand(request);
    // If the reply is read so late that the lease may be over, ask again.
    if (lock.fence !== null && performance.now() < asked + ttl) return lock;
    const left = Math.ceil(end - performance.now());
    if (lock.fence === null && left <= 0) return null;
    if (lock.fence === null) await wait(left, request); // a grant is confirmed by asking again
  }
}

/** Waits in the server's queue. A wait stalls its connection, so it has one of its own. */
async function wait(patience, request) {
  const connection = await connected(redis.duplicate());
  try {
    await connection.sendCommand([...request, 'BLOCK', `${patience}`]);
  } finally {
    connection.destroy();
  }
}

/** Whether it still was ours to give back. */
async function release(lock) {
  // What it sends are strings, all of it.
  return (await redis.sendCommand(['LOCK.RELEASE', lock.key, lock.owner, `${lock.fence}`])) === 1;
}

async function connected(connection) {
  connection.on('error', (error) => {
    console.error(`No server at ${URL} (${error.message}). Start one: make run`);
    process.exit(1);
  });
  return connection.connect();
}

// --- the book ----------------------------------------------------------------------------------

const folder = mkdtempSync(join(tmpdir(), 'bookings-'));
process.on('exit', () => rmSync(folder, { recursive: true }));
const book = new sqlite.Database(join(folder, 'bookings.db'));
book.exec(`CREATE TABLE seat (
  number INTEGER, hour TEXT, guest TEXT, fence INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (number, hour))`);

/** Leaves the fence before reading: from now on nobody with a smaller one can write what we read. */
function isFree(table, hour, fence) {
  book.run('INSERT OR IGNORE INTO seat (number, hour) VALUES (?, ?)', [table, hour]);
  write('fence = :fence', { ':number': table, ':hour': hour, ':fence': fence });
  const seat = book.get('SELECT guest FROM seat WHERE number = ? AND hour = ?', [table, hour]);
  return seat.guest === null;
}

/** Whether it was written: not if the book has seen a larger fence. */
function enter(table, hour, guest, fence) {
  return write('guest = :guest, fence = :fence', {
    ':number': table, ':hour': hour, ':guest': guest, ':fence': fence,
  });
}

function write(what, values) {
  const where = 'number = :number AND hour = :hour AND fence <= :fence';
  return book.run(`UPDATE seat SET ${what} WHERE ${where}`, values).changes === 1;
}

/** What a guest does who has got the lock. */
async function reserve(guest, table, hour, lock) {
  try {
    const done = isFree(table, hour, lock.fence) && enter(table, hour, guest, lock.fence);
    tell(guest, done ? `books table ${table} at ${hour}` : `finds table ${table} taken at ${hour}`);
  } finally {
    tell(guest, (await release(lock)) ? 'gives the lock back' : 'finds the lock lost');
  }
}

// --- the story ---------------------------------------------------------------------------------

async function oneAfterTheOther() {
  chapter('1. One after the other');
  for (const [guest, hour] of [['alice', '18:00'], ['bob', '20:00']]) {
    const lock = await acquire(1, TTL);
    tell(guest, `has the lock of table 1, fence ${lock.fence}`);
    await reserve(guest, 1, hour, lock);
  }
}

async function atTheSameTime() {
  chapter('2. Two in the same instant');
  const guests = ['carol', 'dave'];
  // Each on a connection of its own, as two machines would be.
  const connections = await Promise.all(guests.map(() => connected(redis.duplicate())));
  const locks = await Promise.all(connections.map((connection) => acquire(2, TTL, 0, connection)));
  connections.forEach((connection) => connection.destroy());
  const first = locks[0] === null ? 1 : 0;
  tell(guests[first], `has the lock of table 2, fence ${locks[first].fence}`);
  const refused = locks[1 - first] === null;
  tell(guests[1 - first], refused ? 'is refused, which is no error, and writes nothing' : 'has it, too');
  await reserve(guests[first], 2, '19:00', locks[first]);
}

async function afterACrash() {
  chapter('3. A holder that crashes');
  // Another process, which ends as by a power failure.
  const program = join(import.meta.dirname, 'crash.js');
  const crashed = spawnSync(process.execPath, [program, 'lock:table:3', randomUUID(), SHORT]);
  tell('erin', `has the lock of table 3 for ${SHORT} ms, fence ${crashed.stdout}`);
  tell('erin', `is gone: her process was ended by ${crashed.signal}`);
  tell('frank', 'waits in the queue of the lock');
  const lock = await acquire(3, TTL, PATIENCE);
  tell('frank', `has the lock, fence ${lock.fence}: her lease has run out`);
  await reserve('frank', 3, '19:00', lock);
}

async function afterAPause() {
  chapter('4. A holder that pauses, and does not know it');
  const late = await acquire(4, SHORT);
  tell('grace', `has the lock of table 4 for ${SHORT} ms, fence ${late.fence}`);
  tell('grace', `finds the table ${isFree(4, '19:00', late.fence) ? 'free' : 'taken'}, and is paused`);
  const lock = await acquire(4, TTL, PATIENCE);
  tell('heidi', `has the lock, fence ${lock.fence}`);
  await reserve('heidi', 4, '19:00', lock);
  const done = enter(4, '19:00', 'grace', late.fence);
  tell('grace', `wakes up and writes: ${done ? 'booked' : 'refused, the book has seen a larger fence'}`);
  tell('grace', (await release(late)) ? 'gives the lock back' : 'finds the lock lost');
}

function theBook() {
  chapter('The book');
  for (const { number, hour, guest } of book.all('SELECT * FROM seat ORDER BY number, hour')) {
    console.log(`   table ${number}, ${hour}  ${guest}`);
  }
}

function chapter(title) {
  console.log(`\n${title}`);
}

function tell(who, what) {
  console.log(`   ${who.padEnd(5)}  ${what}`);
}

console.log('Four tables, a lock for each, and a book that refuses an older fence than it has seen.');
await oneAfterTheOther();
await atTheSameTime();
await afterACrash();
await afterAPause();
theBook();
redis.destroy();
