/* Every function of naaice_swnaa.h for a server as it is meant to be used, and with NULL and nonsense. */
#include "swnaa.h"

static void serve_until(struct context *server, int total) {
  const double limit = seconds() + 20 * slowness();
  while (server->total_connections_lifetime < total || server->con_mng->top < MAX_CONNECTIONS) {
    CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0 && seconds() < limit);
  }
}

static void three_hosts(void) {
  await();
  CHECK(call_once(1, 5) == 0 && call_once(2, 5) == 0 && call_once(3, 5) == 0);
  /* Nobody knows it; it is an answer. */
  CHECK(call_once(77, 5) == 0x10);
}

static void ends_a_server(struct context *server) {
  CHECK(naaice_swnaa_shutdown_master(&server, 5000 * slowness()) == 0 && server == NULL);
}

static void serves_forked(void (*hosts)(void), int total, struct context *(*start)(void)) {
  const pid_t host = child(hosts);
  struct context *server = start();
  tell();
  serve_until(server, total);
  ends_well(host);
  ends_a_server(server);
}

static void poll_and_handle(void) {
  serves_forked(three_hosts, 4, start_server);
  CHECK(kernel_calls == 3);
}

static struct context *sized(void) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master_sized(&server, spare_port(), MAX_CONNECTIONS, match_function_code) == 0);
  return server;
}

static void init_sized(void) { serves_forked(three_hosts, 4, sized); }

static uint8_t remote_procedure(uint8_t fncode, struct naaice_communication_context *ctx) {
  (void)ctx;
  return fncode == 42 ? 0x42 : 0;
}

static struct context *next(void) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master_next(&server, spare_port(), remote_procedure, MAX_CONNECTIONS) == 0);
  return server;
}

static void hosts_of_next(void) {
  await();
  CHECK(call_once(3, 5) == 0 && call_once(42, 5) == 0x42 && call_once(4, 5) == 0);
}

static void init_next(void) { serves_forked(hosts_of_next, 3, next); }

static volatile int workers;

/* The library's own, with something before it. */
static void *own_worker(void *args) {
  __atomic_add_fetch(&workers, 1, __ATOMIC_RELAXED);
  return worker_procedure(args);
}

static struct context *with_worker(void) {
  struct context *server = start_server();
  CHECK(naaice_swnaa_set_worker(server, own_worker) == 0);
  CHECK(naaice_swnaa_set_worker(server, NULL) == 0 && naaice_swnaa_set_worker(server, own_worker) == 0);
  return server;
}

static void set_worker(void) {
  serves_forked(three_hosts, 4, with_worker);
  CHECK(workers == 4 && kernel_calls == 3);
}

static void setup(void) {
  const pid_t host = child(hosts_without_end);
  struct context *server = start_told_server();
  server->master->timeout = 20 * slowness();
  CHECK(naaice_swnaa_setup_connection(server) == 0 && server->total_connections_lifetime >= 1);
  ends(host);
  ends_a_server(server);
}

static void setup_times_out(void) {
  struct context *server = start_server();
  server->master->timeout = 0.3;
  const double start = seconds();
  REFUSED(naaice_swnaa_setup_connection(server), "timeout of 0.3 s");
  CHECK(seconds() - start >= 0.3 && seconds() - start < 2 * slowness());
  ends_a_server(server);
}

static void requests(void) {
  const pid_t host = child(hosts_without_end);
  struct context *server = start_told_server();
  const double limit = seconds() + 20 * slowness();
  while (naaice_swnaa_handle_connection_requests(server, NULL) != 0) {
    CHECK(strstr(WHY, "no host asks") != NULL && seconds() < limit);
    pause_ms(1);
  }
  CHECK(server->total_connections_lifetime == 1);
  ends(host);
  while (server->con_mng->top < MAX_CONNECTIONS) {
    CHECK(seconds() < limit);
    pause_ms(5);
  }
  ends_a_server(server);
}

static void init_worker(void) {
  struct context *server = start_server();
  CHECK(naaice_swnaa_init_worker(&server, 0) == 0 && server->worker[0]->state == NAAICE_INIT);
  CHECK(naaice_swnaa_init_worker(&server, (uint8_t)(MAX_CONNECTIONS - 1)) == 0);
  CHECK(server->worker[MAX_CONNECTIONS - 1]->connection_id == MAX_CONNECTIONS - 1);
  server->worker[0]->timeout = 7;
  ends_a_server(server);
}

static void bare_context(void) {
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_swnaa_init_communication_context(&ctx) == 0 && ctx->state == NAAICE_INIT);
  REFUSED(naaice_swnaa_do_mrsp(ctx), "state is INIT");
  CHECK(naaice_swnaa_disconnect_and_cleanup(ctx) == 0 && ctx->state == NAAICE_FINISHED);
}

static void hook(void) {
  void (*kernel)(struct naaice_communication_context *) = NULL;
  CHECK(match_function_code(1, &kernel) == 0 && kernel == kernel_increment);
}

/* A server that is ended and begun again, on its port; one on a port that is used. */
static void shutdown_row(void) {
  struct context *server = NULL, *second = NULL;
  for (int times = 0; times < 10; times++) {
    server = start_server();
    CHECK(naaice_swnaa_shutdown_master(&server, times % 2 ? -1 : 0) == 0 && server == NULL);
  }
  server = start_server();
  /* An idle one gives way. Its memory is the program's. */
  second = start_server();
  REFUSED(naaice_swnaa_poll_and_handle_connection_event(server), "nothing of this library");
  free(server->master);
  free(server->con_mng);
  free(server);
  ends_a_server(second);
}

static void sleeping_host(void) {
  await();
  static char data[8];
  size_t sizes[1] = {8};
  char *params[1] = {data};
  uint8_t user[3] = {0xff, 0xff, 0};
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 1, 0, NULL, 100, local_ip(), spare_ip(), spare_port()) == 0);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 0) == 0);
  CHECK(naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0 && naaice_set_immediate(ctx, user) == 0);
  (void)naaice_do_data_transfer(ctx);
}

/* A kernel that runs for a minute: the server says so, and lives on. */
static void shutdown_in_a_call(void) {
  const pid_t host = child(sleeping_host);
  struct context *server = start_told_server();
  const double limit = seconds() + 20 * slowness();
  while (server->worker[MAX_CONNECTIONS - 1] == NULL && server->worker[0] == NULL) {
    CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0 && seconds() < limit);
    if (server->con_mng->top < MAX_CONNECTIONS) {
      break;
    }
  }
  pause_ms(300 * slowness());
  const double start = seconds();
  REFUSED(naaice_swnaa_shutdown_master(&server, 200), "");
  CHECK(server != NULL && seconds() - start < 3 * slowness());
  ends(host);
}

static void servers(int (*call)(struct context *)) {
  void *bad[NONSENSE];
  struct naaice_communication_context *bare = NULL;
  REFUSED(call(NULL), "NULL");
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    REFUSED(call((struct context *)bad[i]), "nothing of this library");
  }
  CHECK(naaice_swnaa_init_communication_context(&bare) == 0);
  REFUSED(call((struct context *)(void *)bare), "software accelerator's context");
  struct context *server = start_server(), *gone = server;
  REFUSED(call((struct context *)(void *)((char *)server + 8)), "nothing of this library");
  ends_a_server(server);
  REFUSED(call(gone), "nothing of this library");
}

#define SERVERS(row, call)                                                                                   \
  static int do_##row(struct context *server) { return call; }                                               \
  static void row(void) { servers(do_##row); }

SERVERS(bad_poll, naaice_swnaa_poll_and_handle_connection_event(server))
SERVERS(bad_requests, naaice_swnaa_handle_connection_requests(server, NULL))
SERVERS(bad_setup, naaice_swnaa_setup_connection(server))
SERVERS(bad_set_worker, naaice_swnaa_set_worker(server, NULL))
SERVERS(bad_worker, naaice_swnaa_init_worker(&server, 0))
SERVERS(bad_shutdown, naaice_swnaa_shutdown_master(&server, 0))

static void contexts(int (*call)(struct naaice_communication_context *)) {
  void *bad[NONSENSE];
  REFUSED(call(NULL), "NULL");
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    REFUSED(call((struct naaice_communication_context *)bad[i]), "nothing of this library");
  }
  struct context *server = start_server();
  REFUSED(call((struct naaice_communication_context *)(void *)server), "server's struct context");
  ends_a_server(server);
}

#define CONTEXTS(row, call)                                                                                  \
  static int do_##row(struct naaice_communication_context *ctx) { return call; }                             \
  static void row(void) { contexts(do_##row); }

static struct rdma_cm_event event;
static uint64_t completion[6];

CONTEXTS(bad_established, naaice_swnaa_handle_connection_established(ctx, &event))
CONTEXTS(bad_error, naaice_swnaa_handle_error(ctx, &event))
CONTEXTS(bad_init_mrsp, naaice_swnaa_init_mrsp(ctx))
CONTEXTS(bad_do_mrsp, naaice_swnaa_do_mrsp(ctx))
CONTEXTS(bad_recv_mrsp, naaice_swnaa_post_recv_mrsp(ctx))
CONTEXTS(bad_completion, naaice_swnaa_handle_work_completion((struct ibv_wc *)(void *)completion, ctx))
CONTEXTS(bad_announce, naaice_swnaa_handle_mr_announce_and_request(ctx))
CONTEXTS(bad_message, naaice_swnaa_send_message(ctx, MSG_MR_ERR, 1))
CONTEXTS(bad_recv_data, naaice_swnaa_post_recv_data(ctx))
CONTEXTS(bad_receive, naaice_swnaa_receive_data_transfer(ctx))
CONTEXTS(bad_transfer, naaice_swnaa_do_data_transfer(ctx, 0))
CONTEXTS(bad_write, naaice_swnaa_write_data(ctx, 0))
CONTEXTS(bad_nonblocking, naaice_swnaa_poll_cq_nonblocking(ctx))
CONTEXTS(bad_clean_up, naaice_swnaa_disconnect_and_cleanup(ctx))

static void bad_masters(void) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  REFUSED(naaice_swnaa_init_master(NULL, spare_port()), "NULL");
  REFUSED(naaice_swnaa_init_master((struct context **)3, spare_port()), "unaligned");
  const int places[] = {0, -1, 257, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    REFUSED(naaice_swnaa_init_master_sized(&server, spare_port(), places[i], match_function_code), "1 to 256");
    REFUSED(naaice_swnaa_init_master_next(&server, spare_port(), remote_procedure, places[i]), "1 to 256");
  }
  REFUSED(naaice_swnaa_init_master_next(&server, spare_port(), NULL, 1), "NULL");
  REFUSED(naaice_swnaa_init_communication_context(NULL), "NULL");
  REFUSED(naaice_swnaa_init_communication_context((struct naaice_communication_context **)1), "");
  REFUSED(naaice_swnaa_shutdown_master(NULL, 0), "NULL");
  REFUSED(naaice_swnaa_init_worker(NULL, 0), "NULL");
  server = start_server();
  REFUSED(naaice_swnaa_init_worker(&server, MAX_CONNECTIONS), "no such slot");
  REFUSED(naaice_swnaa_init_worker(&server, 255), "no such slot");
  ends_a_server(server);
  const char *const nowhere[] = {"nowhere", "192.0.2.9", "999.1.1.1", "%s%n"};
  for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
    setenv("NAA_LOCAL_IP", nowhere[i], 1);
    REFUSED(naaice_swnaa_init_master(&server, spare_port()), nowhere[i]);
  }
}

static void bad_procedure(void) {
  void *bad[NONSENSE];
  CHECK(worker_procedure(NULL) == NULL);
  nonsense(bad);
  struct context *server = start_server();
  struct worker_args *args = (struct worker_args *)calloc(1, sizeof *args);
  args->ctx = server;
  args->worker_id = 200;
  CHECK(worker_procedure(args) == NULL);
  args = (struct worker_args *)calloc(1, sizeof *args);
  args->ctx = (struct context *)bad[2];
  CHECK(worker_procedure(args) == NULL);
  ends_a_server(server);
}

static void bad_hook(void) {
  void (*kernel)(struct naaice_communication_context *) = NULL;
  CHECK(match_function_code(0, &kernel) == 0 && kernel == NULL && match_function_code(255, &kernel) == 0 && kernel == NULL);
}

static const struct row rows[] = {
    {"naaice_swnaa_init_master", "use", poll_and_handle, 30, false},
    {"naaice_swnaa_init_master", "arguments, also of its siblings", bad_masters, 30, false},
    {"naaice_swnaa_init_master_sized", "use", init_sized, 30, false},
    {"naaice_swnaa_init_master_sized", "arguments", bad_masters, 30, false},
    {"naaice_swnaa_init_master_next", "use", init_next, 30, false},
    {"naaice_swnaa_init_master_next", "arguments", bad_masters, 30, false},
    {"naaice_swnaa_init_communication_context", "use", bare_context, 10, false},
    {"naaice_swnaa_init_communication_context", "arguments", bad_masters, 30, false},
    {"naaice_swnaa_poll_and_handle_connection_event", "use", poll_and_handle, 30, false},
    {"naaice_swnaa_poll_and_handle_connection_event", "arguments", bad_poll, 10, false},
    {"naaice_swnaa_handle_connection_requests", "use", requests, 30, false},
    {"naaice_swnaa_handle_connection_requests", "arguments", bad_requests, 10, false},
    {"naaice_swnaa_setup_connection", "use", setup, 30, false},
    {"naaice_swnaa_setup_connection", "arguments", bad_setup, 10, false},
    {"naaice_swnaa_setup_connection", "errors, the timeout", setup_times_out, 10, false},
    {"naaice_swnaa_set_worker", "use", set_worker, 30, false},
    {"naaice_swnaa_set_worker", "arguments", bad_set_worker, 10, false},
    {"naaice_swnaa_init_worker", "use", init_worker, 10, false},
    {"naaice_swnaa_init_worker", "arguments", bad_worker, 10, false},
    {"naaice_swnaa_shutdown_master", "use", shutdown_row, 20, false},
    {"naaice_swnaa_shutdown_master", "states, in a call", shutdown_in_a_call, 30, false},
    {"naaice_swnaa_shutdown_master", "arguments", bad_shutdown, 10, false},
    {"worker_procedure", "use", set_worker, 30, false},
    {"worker_procedure", "arguments", bad_procedure, 10, false},
    {"match_function_code", "use", hook, 5, false},
    {"match_function_code", "arguments", bad_hook, 5, false},
    {"naaice_swnaa_handle_connection_established", "arguments", bad_established, 10, false},
    {"naaice_swnaa_handle_error", "arguments", bad_error, 10, false},
    {"naaice_swnaa_init_mrsp", "arguments", bad_init_mrsp, 10, false},
    {"naaice_swnaa_do_mrsp", "arguments", bad_do_mrsp, 10, false},
    {"naaice_swnaa_post_recv_mrsp", "arguments", bad_recv_mrsp, 10, false},
    {"naaice_swnaa_handle_work_completion", "arguments", bad_completion, 10, false},
    {"naaice_swnaa_handle_mr_announce_and_request", "arguments", bad_announce, 10, false},
    {"naaice_swnaa_send_message", "arguments", bad_message, 10, false},
    {"naaice_swnaa_post_recv_data", "arguments", bad_recv_data, 10, false},
    {"naaice_swnaa_receive_data_transfer", "arguments", bad_receive, 10, false},
    {"naaice_swnaa_do_data_transfer", "arguments", bad_transfer, 10, false},
    {"naaice_swnaa_write_data", "arguments", bad_write, 10, false},
    {"naaice_swnaa_poll_cq_nonblocking", "arguments", bad_nonblocking, 10, false},
    {"naaice_swnaa_disconnect_and_cleanup", "arguments", bad_clean_up, 10, false},
};

MAIN(rows)
