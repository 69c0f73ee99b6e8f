/* A program that declares the function itself, with and without kernels to be found. */
#include <stdint.h>
#include <string.h>

struct context;
struct naaice_communication_context;

int naaice_swnaa_init_master(struct context **ctx, uint16_t local_cm_port);
int naaice_swnaa_shutdown_master(struct context **ctx, int timeout_ms);
const char *naaice_last_error(void);

#ifdef WITH_KERNELS
int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *));

int match_function_code(uint8_t fncode, void (**worker_func)(struct naaice_communication_context *)) {
  (void)fncode;
  (void)worker_func;
  return 0;
}
#endif

int main(void) {
  struct context *ctx = 0;
  if (naaice_swnaa_init_master(&ctx, 12345)) {
    return strstr(naaice_last_error(), "match_function_code") ? 5 : 1;
  }
  return naaice_swnaa_shutdown_master(&ctx, 0);
}
