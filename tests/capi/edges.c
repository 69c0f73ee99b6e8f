/* Odd sizes, places and roles, by naaice.h: the right bytes, or a clear refusal. What is not the regions' is not touched. */
#include "host.h"

enum { MOST = 31, GUARD = 16 };

/* Regions of any size and place, and what a row says of them. */
struct edge {
  struct naaice_communication_context *ctx;
  unsigned count;
  char *params[MOST];
  size_t sizes[MOST];
};

static int edge_create(struct edge *edge, uint8_t function) {
  return naaice_init_communication_context(&edge->ctx, 0, edge->sizes, edge->params, edge->count, 0, NULL, function,
                                           local_ip(), server_ip(), server_port());
}

/* Inputs and outputs by the bits of masks. */
static void edge_connect(struct edge *edge, uint8_t function, uint32_t inputs, uint32_t outputs) {
  CHECK(edge_create(edge, function) == 0 && naaice_setup_connection(edge->ctx) == 0);
  for (unsigned i = 0; i < edge->count; i++) {
    CHECK((inputs >> i & 1) == 0 || naaice_set_input_mr(edge->ctx, i) == 0);
    CHECK((outputs >> i & 1) == 0 || naaice_set_output_mr(edge->ctx, i) == 0);
  }
  CHECK(naaice_register_mrs(edge->ctx) == 0 && naaice_do_mrsp(edge->ctx) == 0);
}

static void edge_call(struct edge *edge) {
  CHECK(naaice_do_data_transfer(edge->ctx) == 0 && edge->ctx->state == NAAICE_FINISHED && edge->ctx->naa_returncode == 0);
}

static void edge_ends(struct edge *edge) {
  CHECK(naaice_disconnect_and_cleanup(edge->ctx) == 0);
  free(edge->ctx);
}

static void two(struct edge *edge, char *in, size_t in_size, char *out, size_t out_size) {
  edge->count = 2;
  edge->params[0] = in;
  edge->params[1] = out;
  edge->sizes[0] = in_size;
  edge->sizes[1] = out_size;
}

static void empty_regions(void) {
  static char byte[1];
  struct edge edge;
  /* Nothing at all, at NULL and elsewhere, as input, output, both. */
  for (int roles = 0; roles < 4; roles++) {
    two(&edge, NULL, 0, byte, 0);
    edge_connect(&edge, SUM, 1 | (roles & 1) << 1, 2 | (roles >> 1 & 1));
    edge_call(&edge);
    edge_call(&edge);
    edge_ends(&edge);
  }
  for (int empty = 0; empty < 2; empty++) {
    byte[0] = 7;
    two(&edge, empty == 0 ? NULL : byte, empty == 0 ? 0 : 1, empty == 0 ? byte : NULL, empty == 0 ? 1 : 0);
    edge_connect(&edge, SUM, 1, 2);
    edge_call(&edge);
    CHECK(byte[0] == (empty == 0 ? 0 : 7));
    edge_ends(&edge);
  }
}

/* Every offset in a cache line, odd sizes, with guards on both sides. */
static void unaligned(void) {
  static char memory[2][70000 + 2 * GUARD + 64];
  const size_t sizes[] = {1, 3, 63, 1023, 1024, 1025, 4095, 4097, 65535, 70000};
  struct edge edge;
  for (size_t offset = 0; offset < 64; offset += 7) {
    const size_t size = sizes[offset / 7 % (sizeof sizes / sizeof *sizes)];
    char *in = memory[0] + GUARD + offset, *out = memory[1] + GUARD + (63 - offset);
    memset(memory, 0x55, sizeof memory);
    memset(in, 1, size);
    two(&edge, in, size, out, size);
    edge_connect(&edge, SUM, 1, 2);
    edge_call(&edge);
    all_are(in, size, 1);
    all_are(out, size, (unsigned)size);
    all_are(memory[0], GUARD + offset, 0x55);
    all_are(in + size, GUARD, 0x55);
    all_are(memory[1], GUARD + 63 - offset, 0x55);
    all_are(out + size, GUARD, 0x55);
    edge_ends(&edge);
  }
}

/* Input and output share memory: what is received overwrites what was sent. */
static void overlapping(void) {
  static char memory[3000];
  struct edge edge;
  const size_t starts[] = {0, 1, 500, 999, 1000, 2000};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    memset(memory, 1, sizeof memory);
    two(&edge, memory, 1000, memory + starts[i], 1000);
    edge_connect(&edge, SUM, 1, 2);
    edge_call(&edge);
    all_are(memory, starts[i], 1);
    all_are(memory + starts[i], 1000, 1000);
    all_are(memory + starts[i] + 1000, sizeof memory - starts[i] - 1000, 1);
    edge_ends(&edge);
  }
}

/* Outputs that overlap: the one with the higher index is what remains. */
static void overlapping_outputs(void) {
  static char memory[200];
  struct edge edge;
  two(&edge, memory, 100, memory + 50, 100);
  memset(memory, 1, sizeof memory);
  edge_connect(&edge, INCREMENT, 3, 3);
  edge_call(&edge);
  /* Each was sent as it is here, and came back greater by 1. */
  all_are(memory, 150, 2);
  all_are(memory + 150, 50, 1);
  edge_ends(&edge);
}

static void no_inputs(void) {
  static char memory[2][100];
  struct edge edge;
  two(&edge, memory[0], 100, memory[1], 100);
  memset(memory, 9, sizeof memory);
  edge_connect(&edge, SUM, 0, 3);
  set_user(edge.ctx, 4);
  edge_call(&edge);
  all_are(memory, sizeof memory, 4);
  edge_ends(&edge);
}

static void no_outputs(void) {
  static char memory[2][100];
  struct edge edge;
  two(&edge, memory[0], 100, memory[1], 100);
  memset(memory, 9, sizeof memory);
  edge_connect(&edge, INCREMENT, 3, 0);
  edge_call(&edge);
  edge_call(&edge);
  all_are(memory, sizeof memory, 9);
  CHECK(edge.ctx->bytes_received == 0);
  edge_ends(&edge);
}

/* Neither: a call that moves nothing. */
static void no_roles(void) {
  static char memory[2][100];
  struct edge edge;
  two(&edge, memory[0], 100, memory[1], 100);
  edge_connect(&edge, SUM, 0, 0);
  edge_call(&edge);
  set_user(edge.ctx, 0x42);
  edge.ctx->fncode = FAIL;
  CHECK(naaice_do_data_transfer(edge.ctx) == 0 && edge.ctx->naa_returncode == 0x42);
  edge_ends(&edge);
}

/* All inputs are sent once only: later calls send nothing, and are calls. */
static void all_single_sends(void) {
  static char memory[2][100];
  struct edge edge;
  two(&edge, memory[0], 100, memory[1], 100);
  memset(memory, 1, sizeof memory);
  CHECK(edge_create(&edge, SUM) == 0 && naaice_setup_connection(edge.ctx) == 0);
  CHECK(naaice_set_singlesend_mr(edge.ctx, 0) == 0 && naaice_set_output_mr(edge.ctx, 1) == 0);
  CHECK(naaice_register_mrs(edge.ctx) == 0 && naaice_do_mrsp(edge.ctx) == 0);
  for (unsigned times = 0; times < 3; times++) {
    set_user(edge.ctx, times);
    edge_call(&edge);
    all_are(memory[1], 100, 100 + times);
    CHECK(edge.ctx->no_input_mrs == 0);
    memset(memory[0], 2, 100);
  }
  edge_ends(&edge);
}

static void many_regions(void) {
  static char memory[MOST][300];
  struct edge edge;
  edge.count = MOST;
  for (unsigned i = 0; i < MOST; i++) {
    edge.params[i] = memory[i];
    edge.sizes[i] = 10 * i;
    memset(memory[i], (int)i, sizeof memory[i]);
  }
  edge_connect(&edge, INCREMENT, 0x7fffffff, 0x55555555);
  for (unsigned times = 1; times <= 3; times++) {
    edge_call(&edge);
    for (unsigned i = 0; i < MOST; i++) {
      all_are(memory[i], edge.sizes[i], i % 2 == 0 ? i + times : i);
      all_are(memory[i] + edge.sizes[i], sizeof memory[i] - edge.sizes[i], i);
    }
  }
  edge_ends(&edge);
}

static void not_registered(char *in, size_t in_size, char *out, size_t out_size) {
  struct edge edge;
  two(&edge, in, in_size, out, out_size);
  CHECK(edge_create(&edge, SUM) == 0 && naaice_setup_connection(edge.ctx) == 0);
  CHECK(naaice_set_input_mr(edge.ctx, 0) == 0 && naaice_set_output_mr(edge.ctx, 1) == 0);
  CHECK(naaice_register_mrs(edge.ctx) == -1 && strlen(WHY) > 0);
  edge_ends(&edge);
}

/* Memory that cannot be registered is refused, not read. */
static void no_memory(void) {
  char *pages = (char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED && mprotect(pages + 8192, 4096, PROT_NONE) == 0);
  not_registered(pages, 3 * 4096, pages, 10);
  CHECK(mprotect(pages + 8192, 4096, PROT_READ) == 0);
  not_registered(pages, 10, pages + 8192, 100);
  not_registered(pages, 10, pages + 4000, 5000);
  /* Nothing is ever mapped so low. */
  not_registered((char *)4096, 10, pages, 10);
  not_registered(pages, 10, (char *)4096, 4096);
}

/* The largest region there is, in the largest and in the smallest role. */
static void two_gib(void) {
  const size_t size = (size_t)1 << 31;
  char *memory = (char *)mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static char small[8];
  struct edge edge;
  CHECK(memory != MAP_FAILED);
  memset(memory, 1, size);
  memory[size] = 77;
  two(&edge, memory, size, small, sizeof small);
  edge_connect(&edge, INCREMENT, 1, 3);
  edge_call(&edge);
  all_are(memory, size, 2);
  CHECK(memory[size] == 77);
  CHECK(naaice_set_bytes_to_send(edge.ctx, 0, INT32_MAX) == 0);
  edge_call(&edge);
  all_are(memory, size, 3);
  edge_ends(&edge);
  edge.sizes[0] = size + 1;
  REFUSED(edge_create(&edge, INCREMENT), "split it");
  munmap(memory, size + 4096);
}

static const struct row rows[] = {
    {"naaice_register_mrs", "edges, regions of no bytes", empty_regions, 20, false},
    {"naaice_register_mrs", "edges, places that are not aligned", unaligned, 20, false},
    {"naaice_register_mrs", "edges, input and output overlap", overlapping, 20, false},
    {"naaice_register_mrs", "edges, outputs overlap", overlapping_outputs, 20, false},
    {"naaice_register_mrs", "edges, no memory there", no_memory, 20, false},
    {"naaice_do_data_transfer", "edges, no inputs", no_inputs, 10, false},
    {"naaice_do_data_transfer", "edges, no outputs", no_outputs, 10, false},
    {"naaice_do_data_transfer", "edges, neither", no_roles, 10, false},
    {"naaice_do_data_transfer", "edges, nothing left to send", all_single_sends, 10, false},
    {"naaice_do_data_transfer", "edges, 31 regions", many_regions, 20, false},
    {"naaice_do_data_transfer", "edges, 2 GiB", two_gib, 300, true},
};

MAIN(rows)
