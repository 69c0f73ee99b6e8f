/* Every function of naaice.h that takes a context, in every state that a context can be in. What is refused changes
 * nothing: the context goes on to a right result. */
#include "host.h"

typedef int operation(struct host *host);

static bool same(const struct naaice_communication_context *before, const struct naaice_communication_context *after) {
  return memcmp((const void *)before, (const void *)after, sizeof *before) == 0;
}

static void goes_on(struct host *host) {
  if (host->ctx->state == NAAICE_ERROR) {
    REFUSED(naaice_init_data_transfer(host->ctx), "state ERROR");
    REFUSED(naaice_do_mrsp(host->ctx), "state ERROR");
    CHECK(host->ctx->state == NAAICE_ERROR);
  } else {
    host_goes_on(host);
  }
}

/* cells, in the order of enum stage: 0: that is returned; -: refused, nothing changed; !: -1, and the context is over. */
static void in_every_state(operation *call, const char *cells) {
  CHECK(strlen(cells) == STAGES);
  for (int stage = 0; stage < STAGES; stage++) {
    struct host host;
    struct naaice_communication_context before;
    host_in(&host, stage);
    memcpy((void *)&before, (const void *)host.ctx, sizeof before);
    const double start = seconds();
    const int result = call(&host);
    if (result != (cells[stage] == '0' ? 0 : -1) || seconds() - start > 8 * slowness()) {
      printf("%s: %d instead of %c after %.1f s: %s\n", stage_name(stage), result, cells[stage], seconds() - start,
             result != 0 ? WHY : "");
      fflush(stdout);
      _exit(1);
    }
    CHECK(result == 0 || strlen(WHY) > 0);
    CHECK(cells[stage] != '-' || same(&before, host.ctx));
    CHECK(cells[stage] != '!' || host.ctx->state == NAAICE_ERROR);
    if (stage != GONE) {
      goes_on(&host);
    }
    host_ends(&host, stage);
  }
}

/* An operation, and its row. */
#define STATES(row, call, cells)                                                                             \
  static int do_##row(struct host *host) { return call; }                                                    \
  static void row(void) { in_every_state(do_##row, cells); }

#define STATES_OF(name, cells) STATES(of_##name, name(host->ctx), cells)

static int with_event(int (*handler)(struct naaice_communication_context *, struct rdma_cm_event *), struct host *host,
                      enum rdma_cm_event_type type) {
  struct rdma_cm_event event;
  memset(&event, 0, sizeof event);
  event.event = type;
  return handler(host->ctx, &event);
}

static int other_parameters(struct host *host) {
  uint64_t local[2], remote[2] = {4096, 8192};
  size_t sizes[2] = {BYTES, BYTES};
  local[0] = (uint64_t)(uintptr_t)host->in;
  local[1] = (uint64_t)(uintptr_t)host->out;
  const int result = naaice_set_parameter_mrs(host->ctx, 2, local, remote, sizes);
  CHECK(result != 0 || (host->ctx->no_input_mrs == 0 && host->ctx->mr_peer_data[1].addr == 8192));
  return result;
}

static int an_internal_region(struct host *host) {
  uint64_t address = 1 << 20;
  size_t size = 5000;
  const int result = naaice_set_internal_mrs(host->ctx, 1, &address, &size);
  CHECK(result != 0 || (host->ctx->no_internal_mrs == 1 && host->ctx->mr_internal[0].size == 5000));
  return result;
}

static int an_immediate(struct host *host) {
  uint8_t bytes[3] = {1, 2, 3};
  const int result = naaice_set_immediate(host->ctx, bytes);
  CHECK(result != 0 || memcmp(host->ctx->immediate_bytearr + 1, bytes, 3) == 0);
  return result;
}

/* A struct ibv_wc, as far as it is looked at. */
static int a_completion(struct host *host, int status) {
  uint64_t wc[6] = {1, 0, 0, 0, 0, 0};
  memcpy(&wc[1], &status, sizeof status);
  return naaice_handle_work_completion((struct ibv_wc *)(void *)wc, host->ctx);
}

static int an_event(struct host *host) {
  struct rdma_cm_event unused, event;
  return naaice_poll_connection_event(host->ctx, &unused, &event);
}

/* Created, Resolved, Connecting, Connected, REgistered, AGreeing, AgreeD, CAlling, Finished, Broken, GOne. */
/*                                               C R c C R a A C F B G */
STATES_OF(naaice_init_rdma_resources,           "0----------")
STATES_OF(naaice_setup_connection,              "00000------")
STATES_OF(naaice_register_mrs,                  "-0000------")
STATES_OF(naaice_init_mrsp,                     "----0------")
STATES_OF(naaice_do_mrsp,                       "----0------")
STATES_OF(naaice_init_data_transfer,            "------0-0--")
STATES_OF(naaice_do_data_transfer,              "------0-0--")
STATES_OF(naaice_poll_cq_nonblocking,           "-----0-00--")
STATES_OF(naaice_poll_cq_blocking,              "-----0-00--")
STATES_OF(naaice_poll_cq_busy,                  "-----0-00--")
STATES_OF(naaice_post_recv_mrsp,                "-00000000--")
STATES_OF(naaice_post_recv_data,                "-00000000--")
STATES_OF(naaice_poll_and_handle_connection_event, "000--------")
STATES(poll_event, an_event(host),              "000--------")
STATES(addr, with_event(naaice_handle_addr_resolved, host, RDMA_CM_EVENT_ADDR_RESOLVED), "0----------")
STATES(route, with_event(naaice_handle_route_resolved, host, RDMA_CM_EVENT_ROUTE_RESOLVED), "-0---------")
STATES(established, with_event(naaice_handle_connection_established, host, RDMA_CM_EVENT_ESTABLISHED), "---00------")
STATES(not_established, with_event(naaice_handle_connection_established, host, RDMA_CM_EVENT_ADDR_RESOLVED), "0000000000-")
STATES(rejected, with_event(naaice_handle_error, host, RDMA_CM_EVENT_REJECTED), "!!!!!!!!!!-")
STATES(disconnected, with_event(naaice_handle_error, host, RDMA_CM_EVENT_DISCONNECTED), "!!!!!!!!!!-")
STATES(other, with_event(naaice_handle_other, host, RDMA_CM_EVENT_ADDR_CHANGE), "-----------")
STATES(parameters, other_parameters(host),      "00000------")
STATES(internals, an_internal_region(host),     "00000------")
STATES(input, naaice_set_input_mr(host->ctx, 0),   "00000------")
STATES(output, naaice_set_output_mr(host->ctx, 1), "00000------")
STATES(single, naaice_set_singlesend_mr(host->ctx, 2), "-----------")
STATES(bytes, naaice_set_bytes_to_send(host->ctx, 0, 5), "0000000000-")
STATES(immediate, an_immediate(host),           "0000000000-")
STATES(failed_completion, a_completion(host, 12), "!!!!!!!!!--")
STATES(good_completion, a_completion(host, 0),  "-----------")
STATES(write_call, naaice_write_data(host->ctx, SUM), "------0-0--")
STATES(send_aar, naaice_send_message(host->ctx, MSG_MR_AAR, 0), "----0------")
STATES(send_err, naaice_send_message(host->ctx, MSG_MR_ERR, 1), "---000000--")
STATES(send_a, naaice_send_message(host->ctx, MSG_MR_A, 0), "-----------")

static void give_up(void) {
  for (int stage = CREATED; stage < STAGES; stage++) {
    struct host host;
    const bool possible = stage >= AGREED && stage < BROKEN;
    host_in(&host, stage);
    CHECK(naaice_write_data(host.ctx, 0) == (possible ? 0 : -1));
    CHECK(!possible || host.ctx->state == NAAICE_ERROR);
    host_ends(&host, stage);
  }
}

/* The struct is the program's afterwards: its state is as it was. */
static void clean_up(void) {
  for (int stage = CREATED; stage < STAGES; stage++) {
    struct host host;
    host_in(&host, stage);
    const int state = host.ctx->state;
    CHECK(naaice_disconnect_and_cleanup(host.ctx) == (stage == GONE ? -1 : 0));
    CHECK((int)host.ctx->state == state && host.ctx->mr_local_data == NULL && host.ctx->no_local_mrs == 0);
    host_ends(&host, GONE);
  }
}

static const struct row rows[] = {
    {"naaice_init_rdma_resources", "states", of_naaice_init_rdma_resources, 30, false},
    {"naaice_setup_connection", "states", of_naaice_setup_connection, 30, false},
    {"naaice_register_mrs", "states", of_naaice_register_mrs, 30, false},
    {"naaice_init_mrsp", "states", of_naaice_init_mrsp, 30, false},
    {"naaice_do_mrsp", "states", of_naaice_do_mrsp, 30, false},
    {"naaice_init_data_transfer", "states", of_naaice_init_data_transfer, 30, false},
    {"naaice_do_data_transfer", "states", of_naaice_do_data_transfer, 30, false},
    {"naaice_poll_cq_nonblocking", "states", of_naaice_poll_cq_nonblocking, 30, false},
    {"naaice_poll_cq_blocking", "states", of_naaice_poll_cq_blocking, 30, false},
    {"naaice_poll_cq_busy", "states", of_naaice_poll_cq_busy, 30, false},
    {"naaice_post_recv_mrsp", "states", of_naaice_post_recv_mrsp, 30, false},
    {"naaice_post_recv_data", "states", of_naaice_post_recv_data, 30, false},
    {"naaice_poll_and_handle_connection_event", "states", of_naaice_poll_and_handle_connection_event, 30, false},
    {"naaice_disconnect_and_cleanup", "states", clean_up, 30, false},
    {"naaice_poll_connection_event", "states", poll_event, 30, false},
    {"naaice_handle_addr_resolved", "states", addr, 30, false},
    {"naaice_handle_route_resolved", "states", route, 30, false},
    {"naaice_handle_connection_established", "states", established, 30, false},
    {"naaice_handle_connection_established", "states, with another event", not_established, 30, false},
    {"naaice_handle_error", "states, REJECTED", rejected, 30, false},
    {"naaice_handle_error", "states, DISCONNECTED", disconnected, 30, false},
    {"naaice_handle_other", "states", other, 30, false},
    {"naaice_set_parameter_mrs", "states", parameters, 30, false},
    {"naaice_set_internal_mrs", "states", internals, 30, false},
    {"naaice_set_input_mr", "states", input, 30, false},
    {"naaice_set_output_mr", "states", output, 30, false},
    {"naaice_set_singlesend_mr", "states, no such parameter", single, 30, false},
    {"naaice_set_bytes_to_send", "states", bytes, 30, false},
    {"naaice_set_immediate", "states", immediate, 30, false},
    {"naaice_handle_work_completion", "states, one that failed", failed_completion, 30, false},
    {"naaice_handle_work_completion", "states, one that did not", good_completion, 30, false},
    {"naaice_write_data", "states", write_call, 30, false},
    {"naaice_write_data", "states, function 0", give_up, 30, false},
    {"naaice_send_message", "states, MSG_MR_AAR", send_aar, 30, false},
    {"naaice_send_message", "states, MSG_MR_ERR", send_err, 30, false},
    {"naaice_send_message", "states, MSG_MR_A", send_a, 30, false},
};

MAIN(rows)
