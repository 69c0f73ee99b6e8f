/* A server of naaice_swnaa.h in this process, and hosts in another. */
#ifndef CAPI_SWNAA_H
#define CAPI_SWNAA_H

#include "swnaa_hook.h"

enum { BYTES = 64 };

static inline struct context *start_server(void) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master(&server, spare_port()) == 0);
  return server;
}

/* The same, and a child that awaits it is told. */
static inline struct context *start_told_server(void) {
  struct context *server = start_server();
  tell();
  return server;
}

/* A host that calls function 1 once: 0 and the result is right, or it was told that something failed. */
static inline int call_once(uint8_t function, unsigned char start) {
  static char data[BYTES];
  size_t sizes[1] = {BYTES};
  char *params[1] = {data};
  struct naaice_communication_context *ctx = NULL;
  int result = -1;
  memset(data, start, BYTES);
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 1, 0, NULL, function, local_ip(), spare_ip(),
                                          spare_port()) == 0);
  ctx->timeout = 10 * slowness();
  if (naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 0) == 0 &&
      naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0 && naaice_do_data_transfer(ctx) == 0) {
    result = ctx->naa_returncode;
    if (result == 0 && function == 1) {
      all_are(data, BYTES, start + 1u);
    }
  }
  /* The server sees its answer acknowledged before the host leaves. */
  pause_ms(20 * slowness());
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  free(ctx);
  return result;
}

/* Hosts, one after the other, until it is killed. */
static inline void hosts_without_end(void) {
  await();
  (void)ulog_output_level_set_all(ULOG_LEVEL_FATAL);
  for (unsigned char start = 0;; start++) {
    (void)call_once(1, start);
    pause_ms(5);
  }
}

static inline void ends(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

#endif
