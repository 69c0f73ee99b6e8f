/* How many connections a NAAICE-compatible server in software has at a time.
 *
 * Compile with -DMAX_CONNECTIONS=N for another number, 1 to 256; all files of a program that include
 * naaice_swnaa.h with the same one. Each connection has a thread, which sleeps while its host wants nothing. */
#ifndef NAAICE_CONFIG_H
#define NAAICE_CONFIG_H

#ifndef MAX_CONNECTIONS
#define MAX_CONNECTIONS 64
#endif

#endif
