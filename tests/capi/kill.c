/* One peer, killed at a random moment: the other side is told in time, and every result until then was right. The seed
 * decides who is killed, when, and how the other side waits; the last line says how it was told, after how many ms. */
#include "swnaa.h"

#include <math.h>
#include <naa.h>
#include <naaice_ap2.h>

enum { LARGE = 1 << 20 };

/* Seconds from the kill until everything that waits must have been told. */
#define TOLD_WITHIN 30.0

static uint64_t randomness;
static char data[LARGE];
static size_t size;
static unsigned char value;
static pid_t victim;
static double killed_at;
static double delay;
static const char *volatile phase = "before";
static volatile bool is_killed;

static double draw(void) {
  randomness = randomness * 6364136223846793005u + 1442695040888963407u;
  return (double)(randomness >> 11) / (double)((uint64_t)1 << 53);
}

static void *killer(void *unused) {
  const struct timespec time = {(time_t)delay, (long)((delay - (double)(time_t)delay) * 1e9)};
  nanosleep(&time, NULL);
  killed_at = seconds();
  is_killed = true;
  kill(victim, SIGKILL);
  return unused;
}

/* Once. */
static void start_killer(void) {
  static bool is_started;
  pthread_t thread;
  if (is_started) {
    return;
  }
  is_started = true;
  /* Each order of magnitude as often as the others. */
  delay = 5e-5 * pow(6000, draw()) * slowness();
  CHECK(pthread_create(&thread, NULL, killer, NULL) == 0 && pthread_detach(thread) == 0);
}

static void serve(void) {
  struct context *server = start_server();
  tell();
  for (;;) {
    (void)naaice_swnaa_poll_and_handle_connection_event(server);
  }
}

static void fill(void) { memset(data, ++value, size); }
/* A right result; at the latest now time runs. */
static void judge(void) {
  all_are(data, size, value + 1u);
  start_killer();
}

/* What a failure may be, and by when. */
static void told(const char *way) {
  const double now = seconds();
  if (!is_killed || now - killed_at > TOLD_WITHIN * slowness()) {
    printf("%s, %s: told %.3f s after the kill, which came after %.6f s: %s\n", way, phase, is_killed ? now - killed_at : -1.0,
           delay, WHY);
    fflush(stdout);
    _exit(1);
  }
  printf("note: %s, killed while %s: %d\n", way, phase, (int)((now - killed_at) * 1000));
}

static void low_level(int (*wait)(struct naaice_communication_context *), const char *way) {
  size_t sizes[1] = {size};
  char *params[1] = {data};
  struct naaice_communication_context *ctx = NULL;
  for (;;) {
    phase = "connecting";
    CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 1, 0, NULL, INCREMENT, local_ip(), spare_ip(),
                                            spare_port()) == 0);
    if (naaice_setup_connection(ctx) != 0) {
      break;
    }
    phase = "agreeing";
    CHECK(naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 0) == 0);
    if (naaice_register_mrs(ctx) != 0 || naaice_do_mrsp(ctx) != 0) {
      break;
    }
    phase = "calling";
    int calls = 0;
    while (calls < 20) {
      fill();
      if (naaice_init_data_transfer(ctx) != 0 || wait(ctx) != 0) {
        break;
      }
      CHECK(ctx->state == NAAICE_FINISHED && ctx->naa_returncode == 0);
      judge();
      calls++;
    }
    if (calls < 20) {
      break;
    }
    CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
    free(ctx);
  }
  CHECK(ctx->state == NAAICE_ERROR);
  told(way);
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  free(ctx);
}

static int by_polling(struct naaice_communication_context *ctx) {
  while (ctx->state < NAAICE_FINISHED) {
    if (naaice_poll_cq_nonblocking(ctx) != 0) {
      return -1;
    }
  }
  return 0;
}

static void middleware(void) {
  char spec[128];
  naa_param_t param = {data, size, false};
  naa_handle handle = {0, NULL};
  snprintf(spec, sizeof spec, "%s:%u:1:1", spare_ip(), spare_port());
  setenv("NAA_SPEC", spec, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  for (;;) {
    naa_status status;
    phase = "creating";
    if (naa_create(INCREMENT, &param, 1, &param, 1, &handle) != 0) {
      break;
    }
    phase = "calling";
    int calls = 0;
    for (; calls < 20; calls++) {
      fill();
      if (naa_invoke(&handle) != 0 || naa_wait(&handle, &status) != 0) {
        break;
      }
      CHECK(status.state == NAAICE_FINISHED && status.naa_error == NAA_SUCCESS);
      judge();
    }
    if (calls < 20) {
      break;
    }
    CHECK(naa_finalize(&handle) == 0);
  }
  told("naa_wait");
  CHECK(handle.comm_ctx == NULL || naa_finalize(&handle) == 0);
}

static void native(void) {
  char address[128];
  naa_region region;
  naa_options options;
  naa_session *session = NULL;
  snprintf(address, sizeof address, "%s:%u", spare_ip(), spare_port());
  memset(&region, 0, sizeof region);
  region.addr = data;
  region.size = size;
  region.flags = NAA_INOUT;
  CHECK(naa_options_init(&options, sizeof options) == NAA_OK);
  options.local_address = local_ip();
  for (;;) {
    naa_outcome outcome;
    phase = "connecting";
    int32_t result = naa_session_connect(address, &region, 1, &options, &session);
    if (result != NAA_OK) {
      CHECK(result == NAA_ERROR_GONE || result == NAA_ERROR_UNREACHABLE || result == NAA_ERROR_TIMEOUT);
      break;
    }
    phase = "calling";
    for (int calls = 0; calls < 20 && result == NAA_OK; calls++) {
      fill();
      result = naa_call(session, INCREMENT, 0, -1, &outcome);
      if (result == NAA_OK) {
        judge();
      }
    }
    if (result != NAA_OK) {
      CHECK(result == NAA_ERROR_GONE && outcome.result == NAA_ERROR_GONE);
      break;
    }
    CHECK(naa_session_close(session) == NAA_OK);
  }
  told("naa_call");
  CHECK(naa_session_close(session) == NAA_OK);
}

static int second_host[2];

static void host_after_the_kill(void) {
  char byte;
  CHECK(read(second_host[0], &byte, 1) == 1 && call_once(1, 9) == 0);
}

/* The host is the victim; its slot comes back, and the next host is served. */
static void server_side(void) {
  CHECK(pipe(second_host) == 0);
  const pid_t second = child(host_after_the_kill);
  victim = child(hosts_without_end);
  struct context *server = start_told_server();
  phase = "serving";
  start_killer();
  const double limit = seconds() + TOLD_WITHIN * slowness();
  while (!is_killed || server->con_mng->top < MAX_CONNECTIONS) {
    CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0 && seconds() < limit);
  }
  told("naaice_swnaa_poll_and_handle_connection_event");
  CHECK(write(second_host[1], "x", 1) == 1);
  while (waitpid(second, NULL, WNOHANG) == 0) {
    CHECK(naaice_swnaa_poll_and_handle_connection_event(server) == 0 && seconds() < 2 * limit);
  }
  CHECK(naaice_swnaa_shutdown_master(&server, 5000 * slowness()) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  const unsigned long seed = strtoul(argv[1], NULL, 10);
  randomness = seed * 0x9e3779b97f4a7c15u + 1;
  (void)draw();
  size = draw() < 0.5 ? 64 : LARGE;
  (void)ulog_output_level_set_all(ULOG_LEVEL_FATAL);
  if (seed % 5 == 4) {
    server_side();
    return 0;
  }
  victim = child(serve);
  await();
  if (draw() < 0.3) {
    start_killer();
  }
  switch (seed % 5) {
    case 0: low_level(naaice_poll_cq_blocking, "naaice_poll_cq_blocking"); break;
    case 1: low_level(by_polling, "naaice_poll_cq_nonblocking"); break;
    case 2: middleware(); break;
    default: native(); break;
  }
  waitpid(victim, NULL, 0);
  return 0;
}
