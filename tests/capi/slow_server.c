/* Accelerators that are slow to look, never look, stop, or leave: an error at the deadline, never a hang. */
#include "swnaa.h"

#include <naa.h>
#include <naaice_ap2.h>

enum manner { NEVER_AGREES, NEVER_TAKES, TAKES_LATE, NEVER_ANSWERS, LEAVES };

static enum manner manner;

static void *lazy(void *argument) {
  struct worker_args *args = (struct worker_args *)argument;
  struct naaice_communication_context *ctx = args->ctx->worker[args->worker_id];
  free(args);
  if (manner == NEVER_AGREES) {
    pause_ms(600000);
  }
  CHECK(naaice_swnaa_do_mrsp(ctx) == 0);
  if (manner == NEVER_TAKES) {
    pause_ms(600000);
  }
  if (manner == TAKES_LATE) {
    pause_ms(1500);
  }
  CHECK(naaice_swnaa_receive_data_transfer(ctx) == 0);
  if (manner == NEVER_ANSWERS) {
    pause_ms(600000);
  }
  if (manner == TAKES_LATE) {
    ctx->mr_local_data[0].addr[0]++;
    CHECK(naaice_swnaa_do_data_transfer(ctx, 0) == 0);
    pause_ms(50);
  }
  (void)naaice_swnaa_disconnect_and_cleanup(ctx);
  return NULL;
}

static void serve(void) {
  struct context *server = start_server();
  CHECK(naaice_swnaa_set_worker(server, lazy) == 0);
  tell();
  for (;;) {
    (void)naaice_swnaa_poll_and_handle_connection_event(server);
  }
}

static char data[BYTES];
static pid_t server;

static void start(enum manner how) {
  manner = how;
  server = child(serve);
  await();
}

static struct naaice_communication_context *connected(void) {
  size_t sizes[1] = {BYTES};
  char *params[1] = {data};
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 1, 0, NULL, INCREMENT, local_ip(), spare_ip(),
                                          spare_port()) == 0);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 0) == 0);
  CHECK(naaice_register_mrs(ctx) == 0);
  return ctx;
}

static void over(struct naaice_communication_context *ctx) {
  const double start = seconds();
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0 && seconds() - start < 2 * slowness());
  free(ctx);
  ends(server);
}

static void agreement(void) {
  start(NEVER_AGREES);
  struct naaice_communication_context *ctx = connected();
  const double begin = seconds();
  ctx->timeout = 0.5;
  REFUSED(naaice_do_mrsp(ctx), "no answer within 500ms");
  CHECK(ctx->state != NAAICE_MRSP_DONE && seconds() - begin >= 0.5 && seconds() - begin < 3 * slowness());
  over(ctx);
}

/* However it is waited for, and whatever the timeout. */
static void agreement_given_up(void) {
  start(NEVER_AGREES);
  struct naaice_communication_context *ctx = connected();
  const double begin = seconds();
  CHECK(naaice_init_mrsp(ctx) == 0);
  while (naaice_poll_cq_nonblocking(ctx) == 0) {
    CHECK(seconds() - begin < 40 * slowness());
  }
  CHECK(ctx->state == NAAICE_ERROR && seconds() - begin >= 19);
  over(ctx);
}

static void each_way_of_waiting(enum manner how) {
  start(how);
  struct naaice_communication_context *ctx = connected();
  CHECK(naaice_do_mrsp(ctx) == 0);
  ctx->timeout = 0.3;
  REFUSED(naaice_do_data_transfer(ctx), "no answer within 300ms");
  REFUSED(naaice_poll_cq_blocking(ctx), "no answer within 300ms");
  REFUSED(naaice_poll_cq_busy(ctx), "no answer within 300ms");
  const double begin = seconds();
  while (seconds() - begin < 0.3) {
    CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
  }
  CHECK(seconds() - begin < 2 * slowness() && ctx->state >= NAAICE_DATA_SENDING && ctx->state < NAAICE_FINISHED);
  over(ctx);
}

static void never_takes(void) { each_way_of_waiting(NEVER_TAKES); }
static void never_answers(void) { each_way_of_waiting(NEVER_ANSWERS); }

static void takes_late(void) {
  start(TAKES_LATE);
  struct naaice_communication_context *ctx = connected();
  CHECK(naaice_do_mrsp(ctx) == 0);
  data[0] = 5;
  ctx->timeout = 0.3;
  REFUSED(naaice_do_data_transfer(ctx), "no answer within 300ms");
  ctx->timeout = 20 * slowness();
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->state == NAAICE_FINISHED && data[0] == 6);
  over(ctx);
}

static void leaves(void) {
  start(LEAVES);
  struct naaice_communication_context *ctx = connected();
  CHECK(naaice_do_mrsp(ctx) == 0);
  const double begin = seconds();
  CHECK(naaice_do_data_transfer(ctx) == -1 && ctx->state == NAAICE_ERROR);
  CHECK(seconds() - begin < 5 * slowness());
  over(ctx);
}

/* The process stands still. What the kernel acknowledges for it is no sign of life for ever; timeouts count. */
static void stopped(void) {
  start(NEVER_TAKES);
  struct naaice_communication_context *ctx = connected();
  CHECK(naaice_do_mrsp(ctx) == 0 && kill(server, SIGSTOP) == 0);
  ctx->timeout = 1;
  const double begin = seconds();
  CHECK(naaice_do_data_transfer(ctx) == -1 && seconds() - begin < 4 * slowness());
  over(ctx);
}

static void middleware(void) {
  char spec[128];
  naa_param_t param = {data, BYTES, false};
  naa_handle handle;
  naa_status status;
  start(NEVER_TAKES);
  struct naaice_communication_context *first = connected();
  snprintf(spec, sizeof spec, "%s:%u:1:1", spare_ip(), spare_port());
  setenv("NAA_SPEC", spec, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  CHECK(naa_create(INCREMENT, &param, 1, &param, 1, &handle) == 0);
  handle.comm_ctx->timeout = 0.3;
  CHECK(naa_invoke(&handle) == 0);
  const double begin = seconds();
  REFUSED(naa_wait(&handle, &status), "no answer within 300ms");
  bool flag = true;
  CHECK(naa_test(&handle, &flag, &status) == 0 && !flag && seconds() - begin < 3 * slowness());
  CHECK(naa_finalize(&handle) == 0 && seconds() - begin < 5 * slowness());
  over(first);
}

static void native(void) {
  char address[128];
  naa_region region;
  naa_session *session = NULL;
  naa_outcome outcome;
  naa_options options;
  start(NEVER_TAKES);
  struct naaice_communication_context *first = connected();
  snprintf(address, sizeof address, "%s:%u", spare_ip(), spare_port());
  memset(&region, 0, sizeof region);
  region.addr = data;
  region.size = BYTES;
  region.flags = NAA_INOUT;
  CHECK(naa_options_init(&options, sizeof options) == NAA_OK);
  options.local_address = local_ip();
  CHECK(naa_session_connect(address, &region, 1, &options, &session) == NAA_OK);
  const double begin = seconds();
  CHECK(naa_call(session, INCREMENT, 0, 200, &outcome) == NAA_ERROR_TIMEOUT);
  CHECK(naa_call_wait(session, 100, &outcome) == NAA_ERROR_TIMEOUT);
  int64_t index = 0;
  CHECK(naa_call_wait_any(&session, 1, 100, &index, &outcome) == NAA_ERROR_TIMEOUT && index == NAA_UNDEFINED);
  CHECK(naa_call_wait_all(&session, 1, 100, &outcome) == NAA_ERROR_TIMEOUT);
  CHECK(seconds() - begin >= 0.5 && seconds() - begin < 4 * slowness());
  CHECK(naa_session_close(session) == NAA_OK);
  over(first);
}

static const struct row rows[] = {
    {"naaice_do_mrsp", "errors, the accelerator never agrees", agreement, 20, false},
    {"naaice_poll_cq_nonblocking", "errors, the accelerator never agrees", agreement_given_up, 60, true},
    {"naaice_do_data_transfer", "errors, the accelerator never looks", never_takes, 20, false},
    {"naaice_do_data_transfer", "errors, the accelerator never answers", never_answers, 20, false},
    {"naaice_do_data_transfer", "errors, the accelerator looks late", takes_late, 20, false},
    {"naaice_do_data_transfer", "errors, the accelerator leaves", leaves, 20, false},
    {"naaice_do_data_transfer", "errors, the accelerator stands still", stopped, 30, false},
    {"naa_wait", "errors, the accelerator never looks", middleware, 20, false},
    {"naa_call_wait", "errors, the accelerator never looks", native, 20, false},
};

MAIN(rows)
