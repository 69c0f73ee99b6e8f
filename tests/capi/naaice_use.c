/* Every function of naaice.h as it is meant to be used, and what it does then. */
#include "host.h"

static void last_error(void) {
  CHECK(strcmp(naaice_last_error(), "") == 0);
  REFUSED(naaice_do_mrsp(NULL), "naaice_do_mrsp: the pointer is NULL");
  const char *text = naaice_last_error();
  struct host host;
  host_in(&host, FINISHED);
  /* What succeeds leaves the text alone. */
  CHECK(text == naaice_last_error() && strstr(text, "naaice_do_mrsp") != NULL);
  host_ends(&host, FINISHED);
}

static void *on_a_thread(void *unused) {
  CHECK(strcmp(naaice_last_error(), "") == 0);
  REFUSED(naaice_do_data_transfer(NULL), "naaice_do_data_transfer");
  return unused;
}

static void last_error_of_threads(void) {
  pthread_t thread;
  REFUSED(naaice_do_mrsp(NULL), "naaice_do_mrsp");
  CHECK(pthread_create(&thread, NULL, on_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(strstr(naaice_last_error(), "naaice_do_mrsp") != NULL);
}

static void constructor(void) {
  static char a[10], b[5000];
  size_t sizes[2] = {10, 5000}, internal[2] = {4096, 1};
  char *params[2] = {a, b};
  struct naaice_communication_context *ctx = NULL;
  for (int times = 0; times < 2; times++) {
    const char *local = times == 0 ? "" : NULL;
    CHECK(naaice_init_communication_context(&ctx, 0x10000, sizes, params, 2, 2, internal, 127, local, server_ip(),
                                            server_port()) == 0);
    CHECK(ctx->state == NAAICE_INIT && ctx->timeout == DEFAULT_TIMEOUT && ctx->retry_count == DEFAULT_RETRY_COUNT);
    CHECK(ctx->fncode == 127 && ctx->immediate_bytearr[0] == 127 && ctx->immediate_bytearr[3] == 0);
    CHECK(ctx->no_local_mrs == 2 && ctx->no_peer_mrs == 2 && ctx->no_internal_mrs == 2 && ctx->no_rpc_calls == 0);
    CHECK(ctx->mr_internal[0].addr == 0x10000 && ctx->mr_internal[0].size == 4096 && ctx->mr_internal[1].addr == 0x11000);
    CHECK(ctx->mr_peer_data[0].addr == 0x12000 && ctx->mr_peer_data[1].addr == 0x13000);
    CHECK(ctx->mr_local_data[1].addr == b && ctx->mr_local_data[1].size == 5000 && !ctx->mr_local_data[1].to_write);
    CHECK(ctx->id == NULL && ctx->ev_channel == NULL && ctx->pd == NULL && ctx->qp == NULL && ctx->cq == NULL);
    CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
    free(ctx);
  }
}

/* The arrays are the caller's again at once. */
static void constructor_copies(void) {
  struct host host;
  size_t *sizes = (size_t *)malloc(2 * sizeof *sizes);
  char **params = (char **)malloc(2 * sizeof *params);
  sizes[0] = sizes[1] = BYTES;
  params[0] = host.in;
  params[1] = host.out;
  char remote[64];
  snprintf(remote, sizeof remote, "%s", server_ip());
  CHECK(naaice_init_communication_context(&host.ctx, 0, sizes, params, 2, 0, NULL, SUM, local_ip(), remote,
                                          server_port()) == 0);
  memset(sizes, 0xff, 2 * sizeof *sizes);
  memset(remote, 'x', sizeof remote - 1);
  free(sizes);
  free(params);
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static struct rdma_cm_event next_event(struct host *host) {
  struct rdma_cm_event unused, event;
  memset(&event, 0xff, sizeof event);
  const double limit = seconds() + 10 * slowness();
  while (naaice_poll_connection_event(host->ctx, &unused, &event) != 0) {
    CHECK(strstr(WHY, "no connection event within") != NULL && seconds() < limit);
  }
  return event;
}

static void connection(void) {
  struct host host;
  host_create(&host, SUM);
  struct rdma_cm_event event = next_event(&host);
  CHECK(event.event == RDMA_CM_EVENT_ADDR_RESOLVED && event.id == NULL && event.status == 0);
  CHECK(naaice_handle_addr_resolved(host.ctx, &event) == 0 && host.ctx->state == NAAICE_READY);
  event = next_event(&host);
  CHECK(event.event == RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK(naaice_handle_route_resolved(host.ctx, &event) == 0 && host.ctx->state == NAAICE_READY);
  event = next_event(&host);
  CHECK(event.event == RDMA_CM_EVENT_ESTABLISHED && host.ctx->state == NAAICE_READY);
  CHECK(naaice_handle_connection_established(host.ctx, &event) == 0 && host.ctx->state == NAAICE_CONNECTED);
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static void poll_and_handle(void) {
  struct host host;
  host_create(&host, SUM);
  const double limit = seconds() + 10 * slowness();
  while (host.ctx->state < NAAICE_CONNECTED) {
    CHECK(naaice_poll_and_handle_connection_event(host.ctx) == 0 || strstr(WHY, "no connection event") != NULL);
    CHECK(seconds() < limit);
  }
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static void handle_other(void) {
  struct host host;
  struct rdma_cm_event event;
  host_in(&host, CONNECTED);
  memset(&event, 0, sizeof event);
  event.event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
  REFUSED(naaice_handle_other(host.ctx, &event), "no event that a host handles");
  host_goes_on(&host);
  event.event = RDMA_CM_EVENT_DISCONNECTED;
  REFUSED(naaice_handle_error(host.ctx, &event), "DISCONNECTED");
  CHECK(host.ctx->state == NAAICE_ERROR);
  host_ends(&host, BROKEN);
}

static void to_a_port(uint16_t port, const char *remote, const char *words, int within) {
  struct host host;
  size_t sizes[2] = {BYTES, BYTES};
  char *params[2] = {host.in, host.out};
  const double start = seconds();
  CHECK(naaice_init_communication_context(&host.ctx, 0, sizes, params, 2, 0, NULL, SUM, local_ip(), remote, port) == 0);
  host.ctx->timeout = 2;
  REFUSED(naaice_setup_connection(host.ctx), words);
  CHECK(host.ctx->state == NAAICE_ERROR && seconds() - start < within * slowness());
  REFUSED(naaice_setup_connection(host.ctx), words);
  REFUSED(naaice_register_mrs(host.ctx), "ERROR");
  host_ends(&host, BROKEN);
}

static void refused(void) { to_a_port((uint16_t)(server_port() + 1), server_ip(), "refused", 3); }
/* Nobody is there; the context's timeout counts. */
static void unreachable(void) { to_a_port(server_port(), is_embedded() ? "127.250.250.250" : "10.9.0.77", "", 5); }

static void roles(void) {
  struct host host;
  host_in(&host, CONNECTED);
  for (int times = 0; times < 2; times++) {
    CHECK(naaice_set_input_mr(host.ctx, 0) == 0 && naaice_set_output_mr(host.ctx, 0) == 0);
    CHECK(naaice_set_output_mr(host.ctx, 1) == 0 && naaice_set_singlesend_mr(host.ctx, 1) == 0);
  }
  /* A single send is an input. */
  CHECK(host.ctx->no_input_mrs == 2 && host.ctx->no_output_mrs == 2);
  CHECK(host.ctx->mr_local_data[1].to_write && host.ctx->mr_local_data[1].single_send);
  CHECK(naaice_register_mrs(host.ctx) == 0 && naaice_do_mrsp(host.ctx) == 0);
  host.ctx->fncode = INCREMENT;
  memset(host.in, 1, BYTES);
  memset(host.out, 10, BYTES);
  for (int times = 1; times <= 3; times++) {
    CHECK(naaice_do_data_transfer(host.ctx) == 0);
    all_are(host.in, BYTES, (unsigned)(1 + times));
    all_are(host.out, BYTES, (unsigned)(10 + times));
    /* Sent once: what is written here now stays unseen. */
    CHECK(host.ctx->no_input_mrs == 1 && !host.ctx->mr_local_data[1].to_write);
    memset(host.out, 77, BYTES);
  }
  host_ends(&host, FINISHED);
}

static void bytes_to_send(void) {
  struct host host;
  host_in(&host, AGREED);
  for (int bytes = 0; bytes <= BYTES; bytes += 16) {
    memset(host.in, bytes, BYTES);
    CHECK(naaice_set_bytes_to_send(host.ctx, 0, bytes) == 0);
    CHECK(naaice_do_data_transfer(host.ctx) == 0);
    /* Behind them is what was sent before, or the zeros of the beginning. */
    all_are(host.out, BYTES, (unsigned)(bytes * bytes));
  }
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static void immediate(void) {
  struct host host;
  host_in(&host, AGREED);
  memset(host.in, 0, BYTES);
  for (unsigned user = 0; user <= 0xffffff; user += 0x111111) {
    set_user(host.ctx, user);
    CHECK(naaice_do_data_transfer(host.ctx) == 0);
    all_are(host.out, BYTES, (user & 255) + (user >> 8 & 255) + (user >> 16));
    host.ctx->fncode = FAIL;
    CHECK(naaice_do_data_transfer(host.ctx) == 0 && host.ctx->state == NAAICE_FINISHED);
    CHECK(host.ctx->naa_returncode == (user > 255 ? 255 : user) && (user == 0 || host.ctx->bytes_received == 0));
    host.ctx->fncode = SUM;
  }
  host_ends(&host, FINISHED);
}

static void internals(void) {
  struct host host;
  uint64_t addresses[2] = {0, 1 << 20};
  size_t sizes[2] = {100, 10000};
  host_in(&host, CONNECTED);
  CHECK(naaice_set_internal_mrs(host.ctx, 2, addresses, sizes) == 0 && host.ctx->no_internal_mrs == 2);
  CHECK(naaice_set_internal_mrs(host.ctx, 0, NULL, NULL) == 0 && host.ctx->no_internal_mrs == 0);
  CHECK(naaice_set_internal_mrs(host.ctx, 1, addresses + 1, sizes + 1) == 0);
  CHECK(host.ctx->mr_internal[0].addr == 1 << 20 && host.ctx->mr_internal[0].size == 10000);
  host_register(&host);
  CHECK(naaice_do_mrsp(host.ctx) == 0);
  host.ctx->fncode = COUNT;
  for (int times = 1; times <= 3; times++) {
    CHECK(naaice_do_data_transfer(host.ctx) == 0);
    all_are(host.out, BYTES, (unsigned)times);
  }
  host_ends(&host, FINISHED);
}

static void parameters(void) {
  struct host host;
  static char other[3][100];
  uint64_t local[3], remote[3] = {0, 0x1000, 0x2000};
  size_t sizes[3] = {100, 0, 100};
  host_in(&host, CONNECTED);
  CHECK(naaice_set_input_mr(host.ctx, 1) == 0 && naaice_register_mrs(host.ctx) == 0);
  for (int i = 0; i < 3; i++) {
    local[i] = (uint64_t)(uintptr_t)other[i];
  }
  CHECK(naaice_set_parameter_mrs(host.ctx, 3, local, remote, sizes) == 0);
  CHECK(host.ctx->no_local_mrs == 3 && host.ctx->no_input_mrs == 0 && host.ctx->mr_peer_data[2].addr == 0x2000);
  CHECK(naaice_set_input_mr(host.ctx, 0) == 0 && naaice_set_output_mr(host.ctx, 2) == 0);
  CHECK(naaice_register_mrs(host.ctx) == 0 && naaice_do_mrsp(host.ctx) == 0);
  memset(other[0], 2, 100);
  CHECK(naaice_do_data_transfer(host.ctx) == 0 && host.ctx->bytes_received == 100);
  all_are(other[2], 100, 200);
  all_are(host.out, BYTES, 0xee);
  host_ends(&host, FINISHED);
}

/* As a program polls, by each function that does. */
static void polling(int (*poll)(struct naaice_communication_context *)) {
  struct host host;
  host_in(&host, REGISTERED);
  CHECK(naaice_init_mrsp(host.ctx) == 0 && host.ctx->state == NAAICE_MRSP_SENDING);
  while (host.ctx->state < NAAICE_MRSP_DONE) {
    CHECK(poll(host.ctx) == 0);
  }
  for (int times = 0; times < 3; times++) {
    host.ctx->fncode = SLEEP;
    set_user(host.ctx, 30);
    const double start = seconds();
    CHECK(naaice_init_data_transfer(host.ctx) == 0 && host.ctx->state == NAAICE_DATA_SENDING);
    CHECK(host.ctx->no_rpc_calls == (unsigned)times + 1);
    while (host.ctx->state < NAAICE_FINISHED) {
      CHECK(poll(host.ctx) == 0);
    }
    CHECK(host.ctx->state == NAAICE_FINISHED && seconds() - start >= 0.03);
    /* Again: it stays. */
    CHECK(poll(host.ctx) == 0 && host.ctx->state == NAAICE_FINISHED);
  }
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static void nonblocking(void) { polling(naaice_poll_cq_nonblocking); }
static void blocking(void) { polling(naaice_poll_cq_blocking); }
static void busy(void) { polling(naaice_poll_cq_busy); }

static void messages(void) {
  struct host host;
  host_in(&host, REGISTERED);
  CHECK(naaice_post_recv_mrsp(host.ctx) == 0 && naaice_send_message(host.ctx, MSG_MR_AAR, 0) == 0);
  CHECK(naaice_poll_cq_blocking(host.ctx) == 0);
  memset(host.in, 1, BYTES);
  CHECK(naaice_post_recv_data(host.ctx) == 0 && naaice_write_data(host.ctx, SUM) == 0);
  CHECK(naaice_poll_cq_blocking(host.ctx) == 0);
  all_are(host.out, BYTES, BYTES);
  /* The accelerator is told, and this side knows. */
  CHECK(naaice_write_data(host.ctx, 0) == 0 && host.ctx->state == NAAICE_ERROR);
  host_ends(&host, BROKEN);
}

static void completion(void) {
  struct host host;
  uint64_t wc[6] = {1, 12, 0, 0, 0, 0};
  host_in(&host, CALLING);
  REFUSED(naaice_handle_work_completion((struct ibv_wc *)(void *)wc, host.ctx), "failed");
  CHECK(host.ctx->state == NAAICE_ERROR);
  host_ends(&host, BROKEN);
}

/* The outputs of a call that was given up are the program's again. */
static void clean_up_in_a_call(void) {
  struct host host;
  host_in(&host, AGREED);
  host.ctx->fncode = SLEEP;
  set_user(host.ctx, (unsigned)(1500 * slowness()));
  CHECK(naaice_init_data_transfer(host.ctx) == 0);
  const double start = seconds();
  host_ends(&host, CALLING);
  CHECK(seconds() - start < slowness());
  memset(host.out, 5, BYTES);
  pause_ms(2000 * slowness());
  all_are(host.out, BYTES, 5);
}

static void timeouts(void) {
  struct host host;
  host_in(&host, AGREED);
  host.ctx->fncode = SLEEP;
  set_user(host.ctx, (unsigned)(500 * slowness()));
  host.ctx->timeout = 0.05;
  REFUSED(naaice_do_data_transfer(host.ctx), "no answer within 50ms");
  REFUSED(naaice_poll_cq_blocking(host.ctx), "no answer within 50ms");
  REFUSED(naaice_poll_cq_busy(host.ctx), "no answer within 50ms");
  /* The call goes on. */
  CHECK(host.ctx->state >= NAAICE_DATA_SENDING && host.ctx->state < NAAICE_FINISHED);
  REFUSED(naaice_do_data_transfer(host.ctx), "in use by a call");
  host.ctx->timeout = 0;
  CHECK(naaice_poll_cq_blocking(host.ctx) == 0 && host.ctx->state == NAAICE_FINISHED);
  host_goes_on(&host);
  host_ends(&host, FINISHED);
}

static struct host shared;

static void *waits(void *unused) {
  CHECK(naaice_poll_cq_blocking(shared.ctx) == 0);
  return unused;
}

static void two_threads(void) {
  pthread_t thread;
  host_in(&shared, AGREED);
  shared.ctx->fncode = SLEEP;
  set_user(shared.ctx, (unsigned)(400 * slowness()));
  CHECK(naaice_init_data_transfer(shared.ctx) == 0);
  CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
  pause_ms(100 * slowness());
  REFUSED(naaice_poll_cq_nonblocking(shared.ctx), "in use by a call on another thread");
  REFUSED(naaice_set_input_mr(shared.ctx, 0), "another thread");
  REFUSED(naaice_disconnect_and_cleanup(shared.ctx), "another thread");
  CHECK(pthread_join(thread, NULL) == 0 && shared.ctx->state == NAAICE_FINISHED);
  host_goes_on(&shared);
  host_ends(&shared, FINISHED);
}

static const struct row rows[] = {
    {"naaice_last_error", "use", last_error, 10, false},
    {"naaice_last_error", "use, each thread has its own", last_error_of_threads, 10, false},
    {"naaice_init_communication_context", "use", constructor, 10, false},
    {"naaice_init_communication_context", "use, nothing of the caller's is kept", constructor_copies, 10, false},
    {"naaice_poll_connection_event", "use, and all handlers", connection, 20, false},
    {"naaice_poll_and_handle_connection_event", "use", poll_and_handle, 20, false},
    {"naaice_handle_error", "use, and naaice_handle_other", handle_other, 10, false},
    {"naaice_setup_connection", "errors, nobody listens", refused, 10, false},
    {"naaice_setup_connection", "errors, nobody is there", unreachable, 15, false},
    {"naaice_set_singlesend_mr", "use, and the other roles", roles, 10, false},
    {"naaice_set_bytes_to_send", "use", bytes_to_send, 10, false},
    {"naaice_set_immediate", "use, and return codes", immediate, 10, false},
    {"naaice_set_internal_mrs", "use", internals, 10, false},
    {"naaice_set_parameter_mrs", "use", parameters, 10, false},
    {"naaice_poll_cq_nonblocking", "use", nonblocking, 10, false},
    {"naaice_poll_cq_blocking", "use", blocking, 10, false},
    {"naaice_poll_cq_busy", "use", busy, 10, false},
    {"naaice_send_message", "use, and naaice_write_data", messages, 10, false},
    {"naaice_handle_work_completion", "use", completion, 10, false},
    {"naaice_disconnect_and_cleanup", "use, in a call", clean_up_in_a_call, 10, false},
    {"naaice_do_data_transfer", "errors, the timeout", timeouts, 10, false},
    {"naaice_poll_cq_blocking", "errors, on two threads", two_threads, 10, false},
};

MAIN(rows)
