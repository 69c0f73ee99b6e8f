/* Made and ended, again and again: neither memory nor descriptors nor threads become more. */
#include "host.h"

#include <dirent.h>
#include <naa.h>

#include "swnaa_hook.h"

/* Allocators take their time to have all they need. */
enum { WARM = 300, FEW = 300, MANY = 10000, SLACK_PAGES = 512 };

static long resident(void) {
  long size = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &pages) == 2 && fclose(file) == 0);
  return pages;
}

static int entries(const char *folder) {
  int count = 0;
  DIR *dir = opendir(folder);
  CHECK(dir != NULL);
  while (readdir(dir) != NULL) {
    count++;
  }
  closedir(dir);
  return count;
}

/* A device that closes stays for a moment, for the sake of its last words. */
static void settle(void) { pause_ms(500 * slowness()); }

static void cycles(void (*cycle)(int), int count) {
  for (int i = 0; i < WARM + count / 10; i++) {
    cycle(i);
  }
  settle();
  const long pages = resident();
  const int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int i = 0; i < count; i++) {
    cycle(i);
  }
  settle();
  /* Threads that have ended may still be there. */
  const double limit = seconds() + 5 * slowness();
  while ((entries("/proc/self/fd") > fds || entries("/proc/self/task") > threads) && seconds() < limit) {
    pause_ms(10);
  }
  const long grown = resident() - pages;
  printf("note: %d cycles, %+ld pages, %+d descriptors, %+d threads\n", count, grown, entries("/proc/self/fd") - fds,
         entries("/proc/self/task") - threads);
  CHECK(grown < SLACK_PAGES && entries("/proc/self/fd") <= fds && entries("/proc/self/task") <= threads);
}

static char in[20000], out[20000];

static void middleware(int number) {
  naa_param_t input = {in, sizeof in, false}, output = {out, sizeof out, false};
  naa_handle handle;
  CHECK(naa_create(SUM, &input, 1, &output, 1, &handle) == 0);
  CHECK(naa_invoke(&handle) == 0);
  if (number % 4 != 0) {
    CHECK(naa_wait(&handle, NULL) == 0);
    memset(in, number, sizeof in);
  }
  CHECK(naa_finalize(&handle) == 0);
}

static void environment(void) {
  static char spec[128];
  snprintf(spec, sizeof spec, "%s:%u:102:1", server_ip(), server_port());
  setenv("NAA_SPEC", spec, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  (void)ulog_output_level_set_all(ULOG_LEVEL_FATAL);
}

static void low_level(int number) {
  struct host host;
  host_in(&host, number % STAGES);
  host_ends(&host, number % STAGES);
}

static void refused(int number) {
  struct host host;
  size_t sizes[2] = {BYTES, BYTES};
  char *params[2] = {host.in, host.out};
  (void)number;
  CHECK(naaice_init_communication_context(&host.ctx, 0, sizes, params, 2, 0, NULL, SUM, local_ip(), server_ip(),
                                          (uint16_t)(server_port() + 1)) == 0);
  REFUSED(naaice_setup_connection(host.ctx), "refused");
  host_ends(&host, BROKEN);
}

static void native(int number) {
  naa_options options;
  naa_session *session = NULL;
  naa_buffer *buffer = NULL;
  naa_region regions[2];
  char address[128];
  snprintf(address, sizeof address, "%s:%u", server_ip(), server_port());
  CHECK(naa_options_init(&options, sizeof options) == NAA_OK && naa_buffer_alloc(8192, &buffer) == NAA_OK);
  options.local_address = local_ip();
  memset(regions, 0, sizeof regions);
  regions[0].addr = in;
  regions[0].size = sizeof in;
  regions[0].flags = NAA_INOUT;
  regions[1].addr = naa_buffer_data(buffer);
  regions[1].size = 8192;
  regions[1].flags = NAA_INPUT;
  CHECK(naa_session_connect(address, regions, 2, &options, &session) == NAA_OK);
  CHECK(naa_call_start(session, INCREMENT, 0) == NAA_OK);
  CHECK(number % 3 == 0 || naa_call_wait(session, 20000 * slowness(), NULL) == NAA_OK);
  CHECK(naa_session_close(session) == NAA_OK && naa_buffer_free(buffer) == NAA_OK);
}

static void master(int number) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master(&server, spare_port()) == 0);
  CHECK(number % 2 == 0 || naaice_swnaa_init_worker(&server, 3) == 0);
  CHECK(naaice_swnaa_shutdown_master(&server, 0) == 0);
}

/* A session that stays keeps the device open, or the device comes and goes as well. */
static void with_device(void (*cycle)(int), int count) {
  struct host kept;
  environment();
  host_in(&kept, AGREED);
  cycles(cycle, count);
  host_goes_on(&kept);
  host_ends(&kept, FINISHED);
}

static void without_device(void (*cycle)(int), int count) {
  environment();
  cycles(cycle, count);
}

static void middleware_few(void) { without_device(middleware, FEW); }
static void middleware_kept(void) { with_device(middleware, FEW); }
static void low_level_few(void) { without_device(low_level, FEW); }
static void low_level_kept(void) { with_device(low_level, FEW); }
static void refused_few(void) { without_device(refused, FEW); }
static void native_few(void) { without_device(native, FEW); }
static void master_few(void) { without_device(master, FEW); }
static void middleware_many(void) { without_device(middleware, MANY); }
static void middleware_many_kept(void) { with_device(middleware, MANY); }
static void low_level_many(void) { without_device(low_level, MANY); }
static void refused_many(void) { without_device(refused, MANY); }
static void native_many(void) { without_device(native, MANY); }
static void native_many_kept(void) { with_device(native, MANY); }
static void master_many(void) { without_device(master, MANY); }

static const struct row rows[] = {
    {"naa_create", "edges, 300 cycles", middleware_few, 60, false},
    {"naa_create", "edges, 300 cycles, the device stays open", middleware_kept, 60, false},
    {"naaice_init_communication_context", "edges, 300 cycles in every state", low_level_few, 60, false},
    {"naaice_init_communication_context", "edges, 300 cycles, the device stays open", low_level_kept, 60, false},
    {"naaice_setup_connection", "edges, 300 refusals", refused_few, 60, false},
    {"naa_session_connect", "edges, 300 cycles", native_few, 60, false},
    {"naaice_swnaa_init_master", "edges, 300 cycles", master_few, 60, false},
    {"naa_create", "edges, 10000 cycles", middleware_many, 1200, true},
    {"naa_create", "edges, 10000 cycles, the device stays open", middleware_many_kept, 1200, true},
    {"naaice_init_communication_context", "edges, 10000 cycles in every state", low_level_many, 1200, true},
    {"naaice_setup_connection", "edges, 10000 refusals", refused_many, 1200, true},
    {"naa_session_connect", "edges, 10000 cycles", native_many, 1200, true},
    {"naa_session_connect", "edges, 10000 cycles, the device stays open", native_many_kept, 1200, true},
    {"naaice_swnaa_init_master", "edges, 10000 cycles", master_many, 1200, true},
};

MAIN(rows)
