/** The slot of a key in a cluster. */
import type { Word } from '../connection.js';

export const SLOTS = 16_384;

export function slotOf(name: Word): number {
  const key = typeof name === 'string' ? Buffer.from(name) : name;
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  return crc16(close > open + 1 ? key.subarray(open + 1, close) : key) % SLOTS;
}

/** CRC-16 of XMODEM. */
function crc16(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc;
}
