/* How long waits take, and how much CPU. */
#define _DEFAULT_SOURCE
#include <naaice.h>

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "naaice_check.h"

#define SLEEP 100

static char in[8], out[8];
static char *params[2] = {in, out};
static size_t sizes[2] = {8, 8};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double cpu(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static struct naaice_communication_context *create(char **argv) {
  struct naaice_communication_context *ctx = NULL;
  CHECK(naaice_init_communication_context(&ctx, 0, sizes, params, 2, 0, NULL, SLEEP, argv[1], argv[2],
                                          (uint16_t)atoi(argv[3])) == 0);
  CHECK(naaice_setup_connection(ctx) == 0 && naaice_register_mrs(ctx) == 0);
  CHECK(naaice_set_input_mr(ctx, 0) == 0 && naaice_set_output_mr(ctx, 1) == 0 && naaice_do_mrsp(ctx) == 0);
  return ctx;
}

static void sleep_for(struct naaice_communication_context *ctx, unsigned int ms) {
  uint8_t user[3] = {(uint8_t)ms, (uint8_t)(ms >> 8), (uint8_t)(ms >> 16)};
  CHECK(naaice_set_immediate(ctx, user) == 0);
}

static void *busy(void *argument) {
  struct naaice_communication_context *ctx = (struct naaice_communication_context *)argument;
  CHECK(naaice_do_data_transfer(ctx) == 0);
  return NULL;
}

int main(int argc, char **argv) {
  struct naaice_communication_context *ctx;
  pthread_t thread;
  double start, used;
  CHECK(argc == 4);
  ctx = create(argv);

  /* A loop around the poll that does not block takes hardly any CPU. */
  sleep_for(ctx, 3000);
  CHECK(naaice_init_data_transfer(ctx) == 0);
  start = now();
  used = cpu();
  while (ctx->state < NAAICE_FINISHED) {
    CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
  }
  printf("polling: %.3f s, %.4f s of CPU\n", now() - start, cpu() - used);
  CHECK(now() - start >= 2.9 && now() - start < 4);
  CHECK(cpu() - used < 0.03);

  /* Who does something between polls is not kept. */
  sleep_for(ctx, 300);
  CHECK(naaice_init_data_transfer(ctx) == 0);
  for (start = now(); now() - start < 0.1;) {
    double before = now();
    CHECK(naaice_poll_cq_nonblocking(ctx) == 0);
    CHECK(now() - before < 0.01);
    usleep(200);
  }
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->state == NAAICE_FINISHED);

  /* Timeouts of fractions of a second, after which the call goes on. */
  sleep_for(ctx, 600);
  ctx->timeout = 0.1;
  start = now();
  REFUSED(naaice_do_data_transfer(ctx), "no answer within 100ms");
  REFUSED(naaice_poll_cq_blocking(ctx), "no answer within 100ms");
  REFUSED(naaice_poll_cq_busy(ctx), "no answer within 100ms");
  CHECK(now() - start >= 0.3 && now() - start < 0.55);
  ctx->timeout = 0;
  CHECK(naaice_poll_cq_blocking(ctx) == 0 && ctx->state == NAAICE_FINISHED);

  /* Blocked. */
  sleep_for(ctx, 2000);
  used = cpu();
  CHECK(naaice_do_data_transfer(ctx) == 0);
  printf("blocked: %.4f s of CPU\n", cpu() - used);
  CHECK(cpu() - used < 0.02);

  /* A context is used by one thread at a time. */
  sleep_for(ctx, 400);
  CHECK(pthread_create(&thread, NULL, busy, ctx) == 0);
  usleep(100000);
  REFUSED(naaice_poll_cq_nonblocking(ctx), "in use by a call on another thread");
  REFUSED(naaice_disconnect_and_cleanup(ctx), "in use by a call on another thread");
  CHECK(pthread_join(thread, NULL) == 0);

  /* Given up in the middle. */
  CHECK(naaice_init_data_transfer(ctx) == 0 && naaice_disconnect_and_cleanup(ctx) == 0);
  puts("ok");
  return 0;
}
