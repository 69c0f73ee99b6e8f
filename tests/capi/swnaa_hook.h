/* What a program with a server of naaice_swnaa.h must define. */
#ifndef CAPI_SWNAA_HOOK_H
#define CAPI_SWNAA_HOOK_H

#include <naaice_swnaa.h>
#include <swnaa_kernels.h>

#include "check.h"

static volatile int kernel_calls;

/* As NAAICE's own: adds to every byte of every region. */
static inline void kernel_add(struct naaice_communication_context *ctx, unsigned char what) {
  __atomic_add_fetch(&kernel_calls, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < ctx->no_local_mrs; i++) {
    unsigned char *bytes = (unsigned char *)ctx->mr_local_data[i].addr;
    for (size_t at = 0; at < ctx->mr_local_data[i].size; at++) {
      bytes[at] = (unsigned char)(bytes[at] + what);
    }
  }
}

static void kernel_increment(struct naaice_communication_context *ctx) { kernel_add(ctx, 1); }
static void kernel_increment_twice(struct naaice_communication_context *ctx) { kernel_add(ctx, 2); }
static void kernel_nothing(struct naaice_communication_context *ctx) { kernel_add(ctx, 0); }
/* For as many milliseconds as the host says. */
static void kernel_sleep(struct naaice_communication_context *ctx) { pause_ms(ctx->immediate >> 8); }

#ifdef __cplusplus
extern "C"
#endif
    int
    match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *)) {
  switch (fncode) {
    case 1: *worker_func = kernel_increment; break;
    case 2: *worker_func = kernel_increment_twice; break;
    case 3: *worker_func = kernel_nothing; break;
    case 100: *worker_func = kernel_sleep; break;
    default: break;
  }
  return 0;
}

#endif
