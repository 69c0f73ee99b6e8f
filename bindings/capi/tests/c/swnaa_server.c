/* A server as NAAICE's users write them: kernels by match_function_code, a loop around the poll function. Commands on
 * standard input let a test look inside. */
#include <naaice_swnaa.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swnaa_kernels.h>
#include <unistd.h>

static struct context *server;
static volatile int calls;
static volatile int stop;

/* Code 1: every byte of every region, as the kernel NAAICE comes with. */
static void increment(struct naaice_communication_context *c) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < c->no_local_mrs; i++) {
    unsigned char *bytes = (unsigned char *)c->mr_local_data[i].addr;
    for (size_t at = 0; at < c->mr_local_data[i].size; at++) bytes[at]++;
  }
}

/* Code 2: what the context says of a call, into region 0. */
static void describe(struct naaice_communication_context *c) {
  uint32_t words[8] = {c->fncode,        c->immediate,      c->no_local_mrs, c->no_internal_mrs,
                       c->no_input_mrs,  c->no_output_mrs,  c->state,        c->bytes_received};
  memcpy(c->mr_local_data[0].addr, words, sizeof words);
}

/* Code 3: region 0 is added to what internal region 0 holds, and the sum goes to region 1. */
static void accumulate(struct naaice_communication_context *c) {
  uint64_t *kept = (uint64_t *)(uintptr_t)c->mr_internal[0].addr;
  *kept += *(uint64_t *)c->mr_local_data[0].addr;
  memcpy(c->mr_local_data[1].addr, kept, sizeof *kept);
}

/* Code 4: takes as many milliseconds as the host says. */
static void slow(struct naaice_communication_context *c) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  usleep((c->immediate >> 8) * 1000);
}

int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *)) {
  switch (fncode) {
    case 1: *worker_func = increment; break;
    case 2: *worker_func = describe; break;
    case 3: *worker_func = accumulate; break;
    case 4: *worker_func = slow; break;
    default: break;
  }
  return 0;
}

static void *commands(void *unused) {
  char line[32];
  while (fgets(line, sizeof line, stdin)) {
    if (line[0] == 's') {
      printf("top %d total %d calls %d\n", server->con_mng->top, server->total_connections_lifetime, calls);
      fflush(stdout);
    } else if (line[0] == 'x') {
      exit(3);
    } else {
      break;
    }
  }
  stop = 1;
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  unsigned short port = argc > 1 ? (unsigned short)atoi(argv[1]) : 12345;
  if (naaice_swnaa_init_master(&server, port)) {
    fprintf(stderr, "%s\n", naaice_last_error());
    return 1;
  }
  if (server->con_mng->top != MAX_CONNECTIONS || server->worker[MAX_CONNECTIONS - 1]) return 2;
  printf("ready\n");
  fflush(stdout);
  pthread_create(&thread, NULL, commands, NULL);
  while (!stop) naaice_swnaa_poll_and_handle_connection_event(server);
  if (naaice_swnaa_shutdown_master(&server, 5000)) {
    fprintf(stderr, "%s\n", naaice_last_error());
    return 1;
  }
  return server != NULL;
}
