/* Every function of naaice.h with NULL, nonsense, and numbers out of range. */
#include <math.h>

#include "host.h"

#include "swnaa_hook.h"

typedef int with_context(struct naaice_communication_context *ctx);

/* Nothing that is no context of a host is read through. */
static void pointers(with_context *call) {
  void *bad[NONSENSE];
  struct host host;
  struct context *server = NULL;
  struct naaice_communication_context *bare = NULL;
  REFUSED(call(NULL), "NULL");
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    REFUSED(call((struct naaice_communication_context *)bad[i]), "nothing of this library");
  }
  host_in(&host, AGREED);
  /* Into the middle of one. */
  REFUSED(call((struct naaice_communication_context *)(void *)((char *)host.ctx + 8)), "nothing of this library");
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master(&server, spare_port()) == 0);
  CHECK(naaice_swnaa_init_communication_context(&bare) == 0);
  REFUSED(call((struct naaice_communication_context *)(void *)server), "server's struct context");
  REFUSED(call(bare), "software accelerator's context");
  CHECK(naaice_swnaa_disconnect_and_cleanup(bare) == 0 && naaice_swnaa_shutdown_master(&server, 0) == 0);
  host_goes_on(&host);
  host_ends(&host, AGREED);
}

#define POINTERS(row, call)                                                                                  \
  static int do_##row(struct naaice_communication_context *ctx) { return call; }                             \
  static void row(void) { pointers(do_##row); }

static struct rdma_cm_event event;
static uint8_t three[3];
static uint64_t words[6];

POINTERS(setup, naaice_setup_connection(ctx))
POINTERS(resources, naaice_init_rdma_resources(ctx))
POINTERS(poll_event, naaice_poll_connection_event(ctx, &event, &event))
POINTERS(addr, naaice_handle_addr_resolved(ctx, &event))
POINTERS(route, naaice_handle_route_resolved(ctx, &event))
POINTERS(established, naaice_handle_connection_established(ctx, &event))
POINTERS(error, naaice_handle_error(ctx, &event))
POINTERS(other, naaice_handle_other(ctx, &event))
POINTERS(poll_and_handle, naaice_poll_and_handle_connection_event(ctx))
POINTERS(registers, naaice_register_mrs(ctx))
POINTERS(parameters, naaice_set_parameter_mrs(ctx, 0, NULL, NULL, NULL))
POINTERS(input, naaice_set_input_mr(ctx, 0))
POINTERS(output, naaice_set_output_mr(ctx, 0))
POINTERS(single, naaice_set_singlesend_mr(ctx, 0))
POINTERS(internals, naaice_set_internal_mrs(ctx, 0, NULL, NULL))
POINTERS(bytes, naaice_set_bytes_to_send(ctx, 0, 0))
POINTERS(immediate, naaice_set_immediate(ctx, three))
POINTERS(init_mrsp, naaice_init_mrsp(ctx))
POINTERS(do_mrsp, naaice_do_mrsp(ctx))
POINTERS(init_data, naaice_init_data_transfer(ctx))
POINTERS(do_data, naaice_do_data_transfer(ctx))
POINTERS(nonblocking, naaice_poll_cq_nonblocking(ctx))
POINTERS(blocking, naaice_poll_cq_blocking(ctx))
POINTERS(busy, naaice_poll_cq_busy(ctx))
POINTERS(completion, naaice_handle_work_completion((struct ibv_wc *)(void *)words, ctx))
POINTERS(message, naaice_send_message(ctx, MSG_MR_AAR, 0))
POINTERS(write_call, naaice_write_data(ctx, 1))
POINTERS(recv_mrsp, naaice_post_recv_mrsp(ctx))
POINTERS(recv_data, naaice_post_recv_data(ctx))
POINTERS(clean_up, naaice_disconnect_and_cleanup(ctx))

static char in[BYTES], out[BYTES];

static int create(size_t *sizes, char **params, unsigned amount, unsigned internals, size_t *internal_sizes, int code,
                  const char *local, const char *remote) {
  struct naaice_communication_context *ctx = (struct naaice_communication_context *)8;
  const int result = naaice_init_communication_context(&ctx, 0, sizes, params, amount, internals, internal_sizes,
                                                       (uint8_t)code, local, remote, server_port());
  CHECK(result == -1 && ctx == NULL);
  return result;
}

static void constructor(void) {
  size_t sizes[33] = {BYTES, BYTES}, internal[2] = {8, 8};
  size_t huge[2] = {8, ((size_t)1 << 31) + 1}, endless[2] = {8, SIZE_MAX};
  char *params[33] = {in, out}, *null[2] = {in, NULL};
  char *at_the_end[2] = {in, (char *)(uintptr_t)-8};
  struct naaice_communication_context *ctx = NULL;
  const char *to = server_ip(), *own = local_ip();
  REFUSED(naaice_init_communication_context(NULL, 0, sizes, params, 2, 0, NULL, 1, own, to, 1), "comm_ctx is NULL");
  REFUSED(naaice_init_communication_context((struct naaice_communication_context **)1, 0, sizes, params, 2, 0, NULL, 1,
                                            own, to, 1),
          "not aligned");
  REFUSED(create(NULL, params, 2, 0, NULL, 1, own, to), "param_sizes is NULL");
  REFUSED(create((size_t *)(void *)((char *)sizes + 1), params, 2, 0, NULL, 1, own, to), "not aligned");
  REFUSED(create(sizes, NULL, 2, 0, NULL, 1, own, to), "params is NULL");
  REFUSED(create(sizes, params, 2, 1, NULL, 1, own, to), "internal_mr_sizes is NULL");
  REFUSED(create(sizes, params, 0, 0, NULL, 1, own, to), "at least one");
  REFUSED(create(sizes, params, 0, 1, internal, 1, own, to), "at least one");
  REFUSED(create(sizes, params, 32, 0, NULL, 1, own, to), "1 to 31");
  REFUSED(create(sizes, params, 30, 2, internal, 1, own, to), "1 to 31");
  REFUSED(create(sizes, params, UINT32_MAX, 0, NULL, 1, own, to), "1 to 31");
  REFUSED(create(sizes, params, 1u << 31, 0, NULL, 1, own, to), "1 to 31");
  REFUSED(create(sizes, params, 2, UINT32_MAX, internal, 1, own, to), "1 to 31");
  REFUSED(create(huge, params, 2, 0, NULL, 1, own, to), "split it");
  REFUSED(create(endless, params, 2, 0, NULL, 1, own, to), "split it");
  REFUSED(create(sizes, params, 1, 2, huge, 1, own, to), "internal region 1");
  REFUSED(create(sizes, null, 2, 0, NULL, 1, own, to), "parameter 1 is NULL");
  REFUSED(create(sizes, at_the_end, 2, 0, NULL, 1, own, to), "parameter 1");
  for (int code = 128; code <= 255; code += 127) {
    REFUSED(create(sizes, params, 2, 0, NULL, code, own, to), "1 to 127");
  }
  REFUSED(create(sizes, params, 2, 0, NULL, 0, own, to), "1 to 127");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, own, NULL), "remote_address is NULL");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, own, ""), "resolve");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, own, "no.such.host.invalid"), "resolve");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, own, "\xff\xfe"), "UTF-8");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, "\xff\xfe", to), "UTF-8");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, "%s%n%s%n", to), "%s%n%s%n");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, "::1", to), "family");
  REFUSED(create(sizes, params, 2, 0, NULL, 1, "192.0.2.77", to), "192.0.2.77");
  REFUSED(naaice_init_communication_context(&ctx, ((uint64_t)1 << 56) - 4096, sizes, params, 2, 0, NULL, 1, own, to, 1),
          "56 bits");
  REFUSED(naaice_init_communication_context(&ctx, UINT64_MAX, sizes, params, 2, 0, NULL, 1, own, to, 1), "56 bits");
  CHECK(ctx == NULL);
}

/* A context that lives through all of it. */
static struct host host;

static void lives(int stage) {
  if (host.ctx == NULL) {
    host_in(&host, stage);
  }
}

static void dies(void) {
  host_goes_on(&host);
  host_ends(&host, AGREED);
}

static void events(void) {
  lives(CREATED);
  REFUSED(naaice_poll_connection_event(host.ctx, NULL, NULL), "ev_cp is NULL");
  REFUSED(naaice_poll_connection_event(host.ctx, &event, (struct rdma_cm_event *)2), "not aligned");
  dies();
}

static void handlers(void) {
  typedef int handler(struct naaice_communication_context *, struct rdma_cm_event *);
  handler *const all[] = {naaice_handle_addr_resolved, naaice_handle_route_resolved,
                          naaice_handle_connection_established, naaice_handle_error, naaice_handle_other};
  lives(CREATED);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    REFUSED(all[i](host.ctx, NULL), "the event is NULL");
    REFUSED(all[i](host.ctx, (struct rdma_cm_event *)4), "not aligned");
    /* Events there are none of, or that are none of the handler's. */
    int number = 4711;
    memcpy(&event.event, &number, sizeof number);
    CHECK(all[i](host.ctx, &event) == (i == 4 ? -1 : 0));
    event.event = RDMA_CM_EVENT_MULTICAST_JOIN;
    CHECK(all[i](host.ctx, &event) == (i == 4 ? -1 : 0));
    CHECK(host.ctx->state == NAAICE_INIT);
  }
  dies();
}

static void indices(void) {
  lives(CONNECTED);
  const unsigned none[] = {2, 3, 255, 256, 1u << 31, UINT32_MAX};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    REFUSED(naaice_set_input_mr(host.ctx, none[i]), "no parameter");
    REFUSED(naaice_set_output_mr(host.ctx, none[i]), "no parameter");
    REFUSED(naaice_set_singlesend_mr(host.ctx, none[i]), "no parameter");
    REFUSED(naaice_set_bytes_to_send(host.ctx, (int)none[i], 1), "no parameter");
  }
  CHECK(host.ctx->no_input_mrs == 0 && host.ctx->no_output_mrs == 0);
  REFUSED(naaice_set_bytes_to_send(host.ctx, 0, BYTES + 1), "65 bytes");
  REFUSED(naaice_set_bytes_to_send(host.ctx, 0, INT32_MAX), "2147483647 bytes");
  CHECK(naaice_set_bytes_to_send(host.ctx, 0, INT32_MIN) == 0);
  dies();
}

static void arrays(void) {
  uint64_t local[2] = {(uint64_t)(uintptr_t)in, 0}, remote[2] = {0, 4096}, beyond[2] = {0, (uint64_t)1 << 56};
  size_t sizes[2] = {8, 8}, huge[2] = {8, (size_t)1 << 40};
  lives(CONNECTED);
  REFUSED(naaice_set_parameter_mrs(host.ctx, 0, local, remote, sizes), "at least one");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 1, NULL, remote, sizes), "local_addrs is NULL");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 1, local, NULL, sizes), "remote_addrs is NULL");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 1, local, remote, NULL), "sizes is NULL");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 2, local, remote, sizes), "parameter 1 is NULL");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 1, local, beyond + 1, sizes), "56 bits");
  REFUSED(naaice_set_parameter_mrs(host.ctx, 2, local, remote, huge), "split it");
  REFUSED(naaice_set_parameter_mrs(host.ctx, UINT32_MAX, local, remote, sizes), "1 to 31");
  REFUSED(naaice_set_internal_mrs(host.ctx, UINT32_MAX, remote, sizes), "1 to 31");
  REFUSED(naaice_set_internal_mrs(host.ctx, 30, remote, sizes), "1 to 31");
  REFUSED(naaice_set_internal_mrs(host.ctx, 1, NULL, sizes), "addrs is NULL");
  REFUSED(naaice_set_internal_mrs(host.ctx, 1, remote, NULL), "sizes is NULL");
  REFUSED(naaice_set_internal_mrs(host.ctx, 2, beyond, sizes), "56 bits");
  REFUSED(naaice_set_internal_mrs(host.ctx, 2, remote, huge), "split it");
  REFUSED(naaice_set_immediate(host.ctx, NULL), "imm_bytes is NULL");
  CHECK(host.ctx->no_local_mrs == 2 && host.ctx->no_internal_mrs == 0);
  dies();
}

static void numbers(void) {
  lives(AGREED);
  for (int code = 128; code < 256; code += 127) {
    REFUSED(naaice_write_data(host.ctx, (uint8_t)code), "1 to 127");
    host.ctx->fncode = (uint8_t)code;
    REFUSED(naaice_init_data_transfer(host.ctx), "1 to 127");
    REFUSED(naaice_do_data_transfer(host.ctx), "1 to 127");
  }
  REFUSED(naaice_send_message(host.ctx, MSG_MR_R, 0), "MSG_MR_AAR and MSG_MR_ERR");
  REFUSED(naaice_handle_work_completion(NULL, host.ctx), "wc is NULL");
  REFUSED(naaice_handle_work_completion((struct ibv_wc *)3, host.ctx), "NULL or not aligned");
  dies();
}

/* A program may write what it likes into the struct: nothing is believed that could harm. */
static void scribbled(void) {
  static const double timeouts[] = {-1, 0, 1e308, (double)INFINITY, (double)NAN, 1e-320};
  lives(AGREED);
  for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
    host.ctx->timeout = timeouts[i];
    host.ctx->fncode = SUM;
    const int result = naaice_do_data_transfer(host.ctx);
    CHECK(result == 0 || strstr(WHY, "no answer within") != NULL);
    host.ctx->timeout = 30;
    CHECK(naaice_poll_cq_blocking(host.ctx) == 0);
  }
  host.ctx->no_local_mrs = host.ctx->no_peer_mrs = host.ctx->no_internal_mrs = 255;
  host.ctx->no_input_mrs = host.ctx->no_output_mrs = 0;
  host.ctx->mr_local_data[0].size = SIZE_MAX;
  host.ctx->mr_local_data[1].addr = (char *)8;
  host.ctx->mr_peer_data[0].rkey = 77;
  host.ctx->mr_peer_data[1].addr = 99;
  struct naaice_mr_local *locals = host.ctx->mr_local_data;
  host.ctx->mr_local_data = (struct naaice_mr_local *)16;
  host.ctx->mr_peer_data = NULL;
  host.ctx->id = (struct rdma_cm_id *)24;
  host.ctx->qp = (struct ibv_qp *)32;
  host.ctx->connection_id = 200;
  dies();
  (void)locals;
}

static void scribbled_state(void) {
  for (int state = -1; state < 100; state++) {
    struct host own;
    host_in(&own, CONNECTED);
    own.ctx->state = (naaice_communication_state)(state & 63);
    (void)naaice_register_mrs(own.ctx);
    (void)naaice_setup_connection(own.ctx);
    (void)naaice_poll_cq_nonblocking(own.ctx);
    (void)naaice_init_mrsp(own.ctx);
    CHECK(naaice_disconnect_and_cleanup(own.ctx) == 0);
    free(own.ctx);
  }
}

static const struct row rows[] = {
    {"naaice_setup_connection", "arguments, pointers", setup, 20, false},
    {"naaice_init_rdma_resources", "arguments, pointers", resources, 20, false},
    {"naaice_poll_connection_event", "arguments, pointers", poll_event, 20, false},
    {"naaice_poll_connection_event", "arguments, events", events, 20, false},
    {"naaice_handle_addr_resolved", "arguments, pointers", addr, 20, false},
    {"naaice_handle_route_resolved", "arguments, pointers", route, 20, false},
    {"naaice_handle_connection_established", "arguments, pointers", established, 20, false},
    {"naaice_handle_error", "arguments, pointers", error, 20, false},
    {"naaice_handle_other", "arguments, pointers", other, 20, false},
    {"naaice_handle_other", "arguments, events for all handlers", handlers, 20, false},
    {"naaice_poll_and_handle_connection_event", "arguments, pointers", poll_and_handle, 20, false},
    {"naaice_register_mrs", "arguments, pointers", registers, 20, false},
    {"naaice_set_parameter_mrs", "arguments, pointers", parameters, 20, false},
    {"naaice_set_parameter_mrs", "arguments, arrays here and of internal regions", arrays, 20, false},
    {"naaice_set_input_mr", "arguments, pointers", input, 20, false},
    {"naaice_set_input_mr", "arguments, numbers of no parameters, for all roles", indices, 20, false},
    {"naaice_set_output_mr", "arguments, pointers", output, 20, false},
    {"naaice_set_singlesend_mr", "arguments, pointers", single, 20, false},
    {"naaice_set_internal_mrs", "arguments, pointers", internals, 20, false},
    {"naaice_set_bytes_to_send", "arguments, pointers", bytes, 20, false},
    {"naaice_set_immediate", "arguments, pointers", immediate, 20, false},
    {"naaice_init_mrsp", "arguments, pointers", init_mrsp, 20, false},
    {"naaice_do_mrsp", "arguments, pointers", do_mrsp, 20, false},
    {"naaice_init_data_transfer", "arguments, pointers", init_data, 20, false},
    {"naaice_do_data_transfer", "arguments, pointers", do_data, 20, false},
    {"naaice_do_data_transfer", "arguments, numbers", numbers, 20, false},
    {"naaice_do_data_transfer", "arguments, a struct that was scribbled on", scribbled, 20, false},
    {"naaice_do_mrsp", "arguments, a state that was scribbled on", scribbled_state, 30, false},
    {"naaice_poll_cq_nonblocking", "arguments, pointers", nonblocking, 20, false},
    {"naaice_poll_cq_blocking", "arguments, pointers", blocking, 20, false},
    {"naaice_poll_cq_busy", "arguments, pointers", busy, 20, false},
    {"naaice_handle_work_completion", "arguments, pointers", completion, 20, false},
    {"naaice_send_message", "arguments, pointers", message, 20, false},
    {"naaice_write_data", "arguments, pointers", write_call, 20, false},
    {"naaice_post_recv_mrsp", "arguments, pointers", recv_mrsp, 20, false},
    {"naaice_post_recv_data", "arguments, pointers", recv_data, 20, false},
    {"naaice_disconnect_and_cleanup", "arguments, pointers", clean_up, 20, false},
    {"naaice_init_communication_context", "arguments", constructor, 30, false},
};

MAIN(rows)
