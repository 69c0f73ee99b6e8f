/* Every function of naaice_swnaa.h for a connection, in every state that one can be in. What is refused changes nothing:
 * the call goes on to a right result. */
#include "swnaa.h"

enum stage { CONNECTED, AGREEING, AGREED, WAITING, CALLED, ANSWERED, SENT, LEFT, CLEANED, STAGES };

static const char *const names[STAGES] = {"connected", "agreeing", "agreed", "waiting", "called",
                                          "answered",  "sent",     "left",   "cleaned"};

typedef int operation(struct naaice_communication_context *ctx);

/* What the connection's thread is to do, and what came of it. */
static operation *wanted;
static const char *cells;
static int stage;
static volatile int judged;

static struct rdma_cm_event event_of(enum rdma_cm_event_type type) {
  struct rdma_cm_event event;
  memset(&event, 0, sizeof event);
  event.event = type;
  return event;
}

static void compute(struct naaice_communication_context *ctx) {
  for (size_t at = 0; at < ctx->mr_local_data[0].size; at++) {
    ctx->mr_local_data[0].addr[at]++;
  }
}

static void until(struct naaice_communication_context *ctx, int state) {
  const double limit = seconds() + 10 * slowness();
  while ((int)ctx->state != state) {
    CHECK(naaice_swnaa_poll_cq_nonblocking(ctx) == 0 && seconds() < limit);
  }
}

static void reach(struct naaice_communication_context *ctx) {
  struct rdma_cm_event established = event_of(RDMA_CM_EVENT_ESTABLISHED);
  const double limit = seconds() + 10 * slowness();
  while (naaice_swnaa_handle_connection_established(ctx, &established) != 0) {
    CHECK(seconds() < limit);
    pause_ms(1);
  }
  CHECK(ctx->state == NAAICE_CONNECTED);
  if (stage >= AGREEING) {
    CHECK(naaice_swnaa_init_mrsp(ctx) == 0 && ctx->state == NAAICE_MRSP_RECEIVING);
  }
  if (stage >= AGREED) {
    CHECK(naaice_swnaa_do_mrsp(ctx) == 0 && ctx->state == NAAICE_MRSP_DONE);
  }
  if (stage >= WAITING) {
    CHECK(naaice_swnaa_post_recv_data(ctx) == 0);
  }
  if (stage >= CALLED) {
    CHECK(naaice_swnaa_receive_data_transfer(ctx) == 0 && ctx->state == NAAICE_CALCULATING && ctx->fncode == 1);
    compute(ctx);
  }
  if (stage >= ANSWERED) {
    CHECK(naaice_swnaa_write_data(ctx, 0) == 0);
  }
  if (stage >= SENT) {
    until(ctx, NAAICE_DATA_RECEIVING);
  }
  if (stage >= LEFT) {
    CHECK(naaice_swnaa_receive_data_transfer(ctx) == 0 && ctx->state == NAAICE_FINISHED);
  }
  if (stage >= CLEANED) {
    CHECK(naaice_swnaa_disconnect_and_cleanup(ctx) == 0);
  }
}

/* The host gets its result, which it judges. */
static void goes_on(struct naaice_communication_context *ctx) {
  if (ctx->state == NAAICE_CONNECTED || ctx->state == NAAICE_MRSP_RECEIVING || ctx->state == NAAICE_MRSP_SENDING) {
    CHECK(naaice_swnaa_do_mrsp(ctx) == 0);
  }
  if (stage < CALLED && ctx->state != NAAICE_CALCULATING) {
    CHECK(naaice_swnaa_receive_data_transfer(ctx) == 0);
  }
  if (stage < CALLED && ctx->state == NAAICE_CALCULATING) {
    compute(ctx);
  }
  if (ctx->state == NAAICE_CALCULATING) {
    CHECK(naaice_swnaa_do_data_transfer(ctx, 0) == 0);
  }
}

static void *work(void *argument) {
  struct worker_args *args = (struct worker_args *)argument;
  struct naaice_communication_context *ctx = args->ctx->worker[args->worker_id];
  free(args);
  reach(ctx);
  const int before = ctx->state;
  const int result = wanted(ctx);
  const char cell = cells[stage];
  if (cell != '?' && result != (cell == '-' || cell == 'X' ? -1 : 0)) {
    printf("%s: %d instead of %c: %s\n", names[stage], result, cell, result ? WHY : "");
    fflush(stdout);
    _exit(1);
  }
  CHECK(result == 0 || strlen(WHY) > 0);
  CHECK(cell != '-' || (int)ctx->state == before);
  const double limit = seconds() + 10 * slowness();
  while (cell == 'E' && ctx->state != NAAICE_FINISHED) {
    (void)naaice_swnaa_poll_cq_nonblocking(ctx);
    CHECK(seconds() < limit);
  }
  CHECK((cell != '!' && cell != 'X') || ctx->state == NAAICE_FINISHED);
  if (ctx->state != NAAICE_FINISHED) {
    goes_on(ctx);
  }
  CHECK(naaice_swnaa_disconnect_and_cleanup(ctx) == 0 && ctx->state == NAAICE_FINISHED);
  judged = stage;
  return NULL;
}

/* cells: 0 is returned; - refused, nothing changed; !: 0, and the connection is over; X: -1, and it is; E: 0, and it is
 * soon; ?: it depends on what has arrived. */
static void in_every_state(operation *call, const char *expected) {
  const pid_t host = child(hosts_without_end);
  struct context *server = start_told_server();
  CHECK(strlen(expected) == STAGES && naaice_swnaa_set_worker(server, work) == 0);
  wanted = call;
  cells = expected;
  judged = -1;
  for (stage = CONNECTED; stage < STAGES; stage++) {
    const double limit = seconds() + 20 * slowness();
    while (judged != stage) {
      CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0 && seconds() < limit);
    }
    while (server->con_mng->top < MAX_CONNECTIONS) {
      pause_ms(1);
      CHECK(seconds() < limit);
    }
  }
  ends(host);
  CHECK(naaice_swnaa_shutdown_master(&server, 5000 * slowness()) == 0 && server == NULL);
}

#define STATES(row, call, cells)                                                                             \
  static int do_##row(struct naaice_communication_context *ctx) { return call; }                             \
  static void row(void) { in_every_state(do_##row, cells); }

static int with_event(int (*handler)(struct naaice_communication_context *, struct rdma_cm_event *),
                      struct naaice_communication_context *ctx, enum rdma_cm_event_type type) {
  struct rdma_cm_event event = event_of(type);
  return handler(ctx, &event);
}

/* struct ibv_wc: wr_id, status, opcode. */
static int completion(struct naaice_communication_context *ctx, int status, int opcode) {
  uint64_t wc[6] = {1, 0, 0, 0, 0, 0};
  memcpy(&wc[1], &status, sizeof status);
  memcpy((char *)&wc[1] + 4, &opcode, sizeof opcode);
  return naaice_swnaa_handle_work_completion((struct ibv_wc *)(void *)wc, ctx);
}

/*                                                                   C A A W C A S L C */
STATES(established, with_event(naaice_swnaa_handle_connection_established, ctx, RDMA_CM_EVENT_ESTABLISHED), "0--------")
STATES(disconnected, with_event(naaice_swnaa_handle_error, ctx, RDMA_CM_EVENT_DISCONNECTED), "!!!!!!!!!")
STATES(no_error, with_event(naaice_swnaa_handle_error, ctx, RDMA_CM_EVENT_ESTABLISHED), "000000000")
STATES(init_mrsp, naaice_swnaa_init_mrsp(ctx),                      "0--------")
STATES(do_mrsp, naaice_swnaa_do_mrsp(ctx),                          "00-------")
STATES(recv_mrsp, naaice_swnaa_post_recv_mrsp(ctx),                 "00-------")
STATES(announce, naaice_swnaa_handle_mr_announce_and_request(ctx),  "-?0------")
STATES(send_a, naaice_swnaa_send_message(ctx, MSG_MR_A, 0),         "-?0------")
STATES(send_err, naaice_swnaa_send_message(ctx, MSG_MR_ERR, 1),     "EEEEEEE--")
STATES(recv_data, naaice_swnaa_post_recv_data(ctx),                 "--00--0--")
STATES(receive, naaice_swnaa_receive_data_transfer(ctx),            "--00--0--")
STATES(transfer, naaice_swnaa_do_data_transfer(ctx, 0),             "----0----")
STATES(write_call, naaice_swnaa_write_data(ctx, 0),                 "----0----")
STATES(poll_call, naaice_swnaa_poll_cq_nonblocking(ctx),            "0000000--")
STATES(odd_completion, completion(ctx, 0, 77),                      "---------")
STATES(failed_completion, completion(ctx, 12, 0),                   "XXXXXXX--")
STATES(clean_up, naaice_swnaa_disconnect_and_cleanup(ctx),          "000000000")

static const struct row rows[] = {
    {"naaice_swnaa_handle_connection_established", "states", established, 60, false},
    {"naaice_swnaa_handle_error", "states, DISCONNECTED", disconnected, 60, false},
    {"naaice_swnaa_handle_error", "states, no error", no_error, 60, false},
    {"naaice_swnaa_init_mrsp", "states", init_mrsp, 60, false},
    {"naaice_swnaa_do_mrsp", "states", do_mrsp, 60, false},
    {"naaice_swnaa_post_recv_mrsp", "states", recv_mrsp, 60, false},
    {"naaice_swnaa_handle_mr_announce_and_request", "states", announce, 60, false},
    {"naaice_swnaa_send_message", "states, MSG_MR_A", send_a, 60, false},
    {"naaice_swnaa_send_message", "states, MSG_MR_ERR", send_err, 60, false},
    {"naaice_swnaa_post_recv_data", "states", recv_data, 60, false},
    {"naaice_swnaa_receive_data_transfer", "states", receive, 60, false},
    {"naaice_swnaa_do_data_transfer", "states", transfer, 60, false},
    {"naaice_swnaa_write_data", "states", write_call, 60, false},
    {"naaice_swnaa_poll_cq_nonblocking", "states", poll_call, 60, false},
    {"naaice_swnaa_handle_work_completion", "states, no such opcode", odd_completion, 60, false},
    {"naaice_swnaa_handle_work_completion", "states, one that failed", failed_completion, 60, false},
    {"naaice_swnaa_disconnect_and_cleanup", "states", clean_up, 60, false},
};

MAIN(rows)
