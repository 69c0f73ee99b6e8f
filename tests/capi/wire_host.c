/* Does what a program of NAAICE's did, by a scenario made of a capture: cargo xtask capi plays the accelerator.
 *
 *   offset N                  where the accelerator's addresses begin
 *   param FLAGS BYTES         a parameter; flags as in an AAR
 *   internal BYTES
 *   connect                   up to the agreement on regions
 *   send INDEX -HEX           what the next call sends of a parameter
 *   call IMMEDIATE            calls, with all that was said to be sent; as on the wire
 *   expect INDEX -HEX         what the call brought back */
#include <naaice.h>

#include "check.h"

enum { MOST = 31, LINE = 70000 };

static struct naaice_communication_context *ctx;
static char *params[MOST];
static size_t sizes[MOST], internals[MOST];
static unsigned flags[MOST], count, internal_count;
static unsigned long long offset;

static size_t from_hex(const char *hex, unsigned char *bytes) {
  size_t length = 0;
  unsigned value = 0;
  for (hex++; sscanf(hex, "%2x", &value) == 1; hex += 2) {
    bytes[length++] = (unsigned char)value;
  }
  return length;
}

static void connect_all(void) {
  CHECK(naaice_init_communication_context(&ctx, offset, sizes, params, count, internal_count, internals, 1, local_ip(),
                                          server_ip(), server_port()) == 0);
  CHECK(naaice_setup_connection(ctx) == 0);
  for (unsigned i = 0; i < count; i++) {
    CHECK((flags[i] & MRFLAG_INPUT) == 0 || naaice_set_input_mr(ctx, i) == 0);
    CHECK((flags[i] & MRFLAG_OUTPUT) == 0 || naaice_set_output_mr(ctx, i) == 0);
    CHECK((flags[i] & MRFLAG_SINGLESEND) == 0 || naaice_set_singlesend_mr(ctx, i) == 0);
  }
  CHECK(naaice_register_mrs(ctx) == 0 && naaice_do_mrsp(ctx) == 0);
}

static void call(uint32_t immediate) {
  uint8_t user[3] = {(uint8_t)(immediate >> 8), (uint8_t)(immediate >> 16), (uint8_t)(immediate >> 24)};
  CHECK(naaice_set_immediate(ctx, user) == 0);
  ctx->fncode = immediate & 0x7f;
  ctx->timeout = 10;
  CHECK(naaice_do_data_transfer(ctx) == 0 && ctx->state == NAAICE_FINISHED && ctx->naa_returncode == 0);
}

int main(int argc, char **argv) {
  static char line[LINE];
  static unsigned char bytes[LINE];
  unsigned a = 0;
  unsigned long b = 0;
  int at = 0;
  CHECK(argc == 2);
  FILE *file = fopen(argv[1], "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "offset %llu", &offset) == 1) {
      continue;
    }
    if (sscanf(line, "param %u %lu", &a, &b) == 2) {
      flags[count] = a;
      sizes[count] = b;
      params[count++] = (char *)calloc(1, b + 1);
    } else if (sscanf(line, "internal %lu", &b) == 1) {
      internals[internal_count++] = b;
    } else if (strncmp(line, "connect", 7) == 0) {
      connect_all();
    } else if (sscanf(line, "send %u %n", &a, &at) == 1) {
      const size_t length = from_hex(line + at, bytes);
      memcpy(params[a], bytes, length);
      CHECK(naaice_set_bytes_to_send(ctx, (int)a, (int)length) == 0);
    } else if (sscanf(line, "call %u", &a) == 1) {
      call(a);
    } else {
      CHECK(sscanf(line, "expect %u %n", &a, &at) == 1);
      const size_t length = from_hex(line + at, bytes);
      CHECK(memcmp(params[a], bytes, length) == 0);
    }
  }
  CHECK(naaice_disconnect_and_cleanup(ctx) == 0);
  free(ctx);
  fclose(file);
  for (unsigned i = 0; i < count; i++) {
    free(params[i]);
  }
  puts("ok");
  return 0;
}
