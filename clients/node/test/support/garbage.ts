/** The garbage collector, which programs cannot call unless Node is told so. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');

export const collect: () => void = runInNewContext('gc');
