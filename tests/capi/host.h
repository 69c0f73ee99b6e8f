/* Contexts of naaice.h in every state. */
#ifndef CAPI_HOST_H
#define CAPI_HOST_H

#include <naaice_ap2.h>

#include "check.h"

enum { BYTES = 64 };

/* A context and its two parameters. */
struct host {
  struct naaice_communication_context *ctx;
  char in[BYTES], out[BYTES];
};

enum stage {
  CREATED,    /* INIT */
  RESOLVED,   /* READY */
  CONNECTING, /* READY, and a REQ is under way */
  CONNECTED,
  REGISTERED, /* CONNECTED */
  AGREEING,   /* MRSP_SENDING */
  AGREED,     /* MRSP_DONE */
  CALLING,    /* DATA_SENDING */
  FINISHED,
  BROKEN, /* ERROR */
  GONE,   /* after the clean-up */
  STAGES
};

static inline const char *stage_name(int stage) {
  static const char *const names[STAGES] = {"created",  "resolved", "connecting", "connected", "registered", "agreeing",
                                            "agreed",   "calling",  "finished",   "broken",    "gone"};
  return names[stage];
}

static inline void set_user(struct naaice_communication_context *ctx, unsigned user) {
  uint8_t bytes[3] = {(uint8_t)user, (uint8_t)(user >> 8), (uint8_t)(user >> 16)};
  CHECK(naaice_set_immediate(ctx, bytes) == 0);
}

static inline void host_create(struct host *host, uint8_t function) {
  size_t sizes[2] = {BYTES, BYTES};
  char *params[2] = {host->in, host->out};
  memset(host->in, 1, BYTES);
  memset(host->out, 0xee, BYTES);
  CHECK(naaice_init_communication_context(&host->ctx, 0, sizes, params, 2, 0, NULL, function, local_ip(),
                                          server_ip(), server_port()) == 0);
}

static inline void host_register(struct host *host) {
  CHECK(naaice_set_input_mr(host->ctx, 0) == 0 && naaice_set_output_mr(host->ctx, 1) == 0);
  CHECK(naaice_register_mrs(host->ctx) == 0);
}

/* A new context in that state. */
static inline void host_in(struct host *host, int stage) {
  struct rdma_cm_event event;
  host_create(host, SUM);
  if (stage == RESOLVED || stage == CONNECTING) {
    CHECK(naaice_init_rdma_resources(host->ctx) == 0 && host->ctx->state == NAAICE_READY);
  }
  if (stage == CONNECTING) {
    memset(&event, 0, sizeof event);
    event.event = RDMA_CM_EVENT_ROUTE_RESOLVED;
    CHECK(naaice_handle_route_resolved(host->ctx, &event) == 0);
  }
  if (stage >= CONNECTED) {
    CHECK(naaice_setup_connection(host->ctx) == 0 && host->ctx->state == NAAICE_CONNECTED);
  }
  if (stage >= REGISTERED) {
    host_register(host);
  }
  if (stage >= AGREEING) {
    CHECK(naaice_init_mrsp(host->ctx) == 0);
  }
  if (stage >= AGREED) {
    CHECK(naaice_poll_cq_blocking(host->ctx) == 0 && host->ctx->state == NAAICE_MRSP_DONE);
  }
  if (stage >= CALLING) {
    CHECK(naaice_init_data_transfer(host->ctx) == 0);
  }
  if (stage >= FINISHED) {
    CHECK(naaice_poll_cq_blocking(host->ctx) == 0 && host->ctx->state == NAAICE_FINISHED);
  }
  if (stage == BROKEN) {
    CHECK(naaice_send_message(host->ctx, MSG_MR_ERR, 1) == 0 && host->ctx->state == NAAICE_ERROR);
  }
  if (stage == GONE) {
    CHECK(naaice_disconnect_and_cleanup(host->ctx) == 0);
  }
}

/* Whatever the state: on to a call whose result is right. */
static inline void host_goes_on(struct host *host) {
  struct naaice_communication_context *ctx = host->ctx;
  if (ctx->state < NAAICE_CONNECTED) {
    CHECK(naaice_setup_connection(ctx) == 0);
  }
  if (ctx->state == NAAICE_CONNECTED) {
    host_register(host);
    CHECK(naaice_do_mrsp(ctx) == 0);
  }
  if (ctx->state < NAAICE_MRSP_DONE || (ctx->state >= NAAICE_DATA_SENDING && ctx->state < NAAICE_FINISHED)) {
    CHECK(naaice_poll_cq_blocking(ctx) == 0);
  }
  CHECK(ctx->state == NAAICE_MRSP_DONE || ctx->state == NAAICE_FINISHED);
  memset(host->in, 3, BYTES);
  memset(host->out, 0xee, BYTES);
  ctx->fncode = SUM;
  set_user(ctx, 1);
  CHECK(naaice_set_bytes_to_send(ctx, 0, -1) == 0);
  CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->state == NAAICE_FINISHED && ctx->naa_returncode == 0);
  all_are(host->out, BYTES, 3 * BYTES + 1);
}

/* Whatever the state, the context included that the clean-up left to the program. */
static inline void host_ends(struct host *host, int stage) {
  if (stage != GONE) {
    CHECK(naaice_disconnect_and_cleanup(host->ctx) == 0);
  }
  REFUSED(naaice_disconnect_and_cleanup(host->ctx), "no more");
  free(host->ctx);
  host->ctx = NULL;
}

#endif
