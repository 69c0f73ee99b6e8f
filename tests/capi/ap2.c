/* The middleware: every function as it is meant to be used, with NULL and nonsense, in every state. */
#include "host.h"

static char in[BYTES], other[BYTES], out[BYTES];
static naa_param_t inputs[2] = {{in, BYTES, false}, {other, BYTES, false}};
static naa_param_t output = {out, BYTES, false};

/* Entries for all functions of the rows, two each. */
static void environment(void) {
  static char spec[512];
  const char *ip = server_ip();
  const unsigned port = server_port();
  snprintf(spec, sizeof spec, "%s:%u:102:1, %s:%u:102:1 ,%s:%u:102:2,%s:%u:1:1,%s:%u:100:1,%s:%u:101:1,%s::102:1", ip,
           port, ip, port, ip, port, ip, port, ip, port, ip, port, ip);
  setenv("NAA_SPEC", spec, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  memset(in, 1, BYTES);
  memset(other, 2, BYTES);
}

static naa_handle created(naa_function_code_t function) {
  naa_handle handle;
  environment();
  CHECK(naa_create(function, inputs, 1, &output, 1, &handle) == 0);
  CHECK(handle.function_code == function && handle.comm_ctx->state == NAAICE_MRSP_DONE);
  return handle;
}

static void user_of(naa_handle *handle, unsigned user) { set_user(handle->comm_ctx, user); }

static void calls(naa_handle *handle) {
  naa_status status;
  memset(&status, 0xff, sizeof status);
  memset(out, 0, BYTES);
  user_of(handle, 0);
  handle->comm_ctx->fncode = SUM;
  CHECK(naa_invoke(handle) == 0 && naa_wait(handle, &status) == 0);
  CHECK(status.state == NAAICE_FINISHED && status.naa_error == NAA_SUCCESS && status.bytes_received == BYTES);
  all_are(out, BYTES, BYTES);
}

static void use_create(void) {
  naa_handle handle = created(SUM), second;
  CHECK(naa_create(SUM, inputs, 2, &output, 1, &second) == 0);
  calls(&handle);
  CHECK(naa_invoke(&second) == 0 && naa_wait(&second, NULL) == 0);
  all_are(out, BYTES, 3 * BYTES);
  CHECK(naa_finalize(&handle) == 0 && naa_finalize(&second) == 0);
  CHECK(handle.comm_ctx == NULL && second.comm_ctx == NULL);
}

/* An output at an input's address is the same region, as long as the longer of both. */
static void use_in_place(void) {
  naa_handle handle;
  naa_param_t half = {in, BYTES / 2, false}, whole = {in, BYTES, false};
  environment();
  CHECK(naa_create(SUM, &half, 1, &whole, 1, &handle) == 0 && handle.comm_ctx->no_local_mrs == 1);
  CHECK(naa_invoke(&handle) == 0 && naa_wait(&handle, NULL) == 0);
  all_are(in, BYTES, BYTES / 2);
  CHECK(naa_finalize(&handle) == 0);
}

static void use_single_send(void) {
  naa_handle handle;
  naa_param_t once = {in, BYTES, true};
  environment();
  CHECK(naa_create(SUM, &once, 1, &output, 1, &handle) == 0);
  for (int times = 0; times < 3; times++) {
    CHECK(naa_invoke(&handle) == 0 && naa_wait(&handle, NULL) == 0);
    all_are(out, BYTES, BYTES);
    memset(in, 50, BYTES);
  }
  CHECK(naa_finalize(&handle) == 0);
}

/* Each entry is one handle's, and comes back. */
static void use_entries(void) {
  naa_handle handles[3], none;
  environment();
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3; i++) {
      CHECK(naa_create(SUM, inputs, 1, &output, 1, &handles[i]) == 0);
    }
    REFUSED(naa_create(SUM, inputs, 1, &output, 1, &none), "in use");
    CHECK(none.comm_ctx == NULL);
    for (int i = 0; i < 3; i++) {
      CHECK(naa_finalize(&handles[i]) == 0);
    }
  }
}

static void use_test(void) {
  naa_handle handle = created(SLEEP);
  naa_status status;
  bool flag = true;
  user_of(&handle, 100);
  CHECK(naa_invoke(&handle) == 0 && naa_test(&handle, &flag, &status) == 0);
  CHECK(!flag && status.state >= NAAICE_DATA_SENDING && status.state < NAAICE_FINISHED);
  while (!flag) {
    CHECK(naa_test(&handle, &flag, NULL) == 0);
  }
  /* Tested to its end, it has ended for every other wait as well. */
  CHECK(naa_wait(&handle, &status) == 0 && status.state == NAAICE_FINISHED);
  flag = false;
  CHECK(naa_test(&handle, &flag, &status) == 0 && flag);
  calls(&handle);
  CHECK(naa_finalize(&handle) == 0);
}

static void use_wait(void) {
  naa_handle handle = created(FAIL);
  naa_status status;
  const unsigned codes[] = {0, SOCKET_UNAVAIL, KERNEL_TIMEOUT, 0x7f, 0xff, 0x100, 0xffffff};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    user_of(&handle, codes[i]);
    CHECK(naa_invoke(&handle) == 0 && naa_wait(&handle, &status) == 0 && status.state == NAAICE_FINISHED);
    CHECK((unsigned)status.naa_error == (codes[i] > 255 ? 255 : codes[i]));
  }
  CHECK(naa_finalize(&handle) == 0);
}

static void errors_wait(void) {
  naa_handle handle = created(SLEEP);
  naa_status status;
  handle.comm_ctx->timeout = 0.05;
  user_of(&handle, (unsigned)(300 * slowness()));
  CHECK(naa_invoke(&handle) == 0);
  REFUSED(naa_wait(&handle, &status), "no answer within 50ms");
  CHECK(status.state < NAAICE_FINISHED);
  handle.comm_ctx->timeout = 60;
  CHECK(naa_wait(&handle, &status) == 0 && status.state == NAAICE_FINISHED);
  calls(&handle);
  CHECK(naa_finalize(&handle) == 0);
}

static void states_invoke(void) {
  naa_handle handle = created(SLEEP);
  user_of(&handle, 100);
  CHECK(naa_invoke(&handle) == 0);
  REFUSED(naa_invoke(&handle), "in use by a call");
  CHECK(naa_wait(&handle, NULL) == 0);
  calls(&handle);
  CHECK(naaice_send_message(handle.comm_ctx, MSG_MR_ERR, 0) == 0);
  REFUSED(naa_invoke(&handle), "state ERROR");
  naa_handle gone = handle;
  CHECK(naa_finalize(&handle) == 0);
  REFUSED(naa_invoke(&handle), "NULL");
  REFUSED(naa_invoke(&gone), "no more");
}

static void states_wait(void) {
  naa_handle handle = created(SUM);
  naa_status status;
  bool flag = true;
  REFUSED(naa_wait(&handle, &status), "after naaice_init_mrsp");
  CHECK(status.state == NAAICE_MRSP_DONE);
  REFUSED(naa_test(&handle, &flag, &status), "after naaice_init_mrsp");
  CHECK(!flag);
  calls(&handle);
  CHECK(naaice_send_message(handle.comm_ctx, MSG_MR_ERR, 0) == 0);
  REFUSED(naa_wait(&handle, &status), "state ERROR");
  CHECK(status.state == NAAICE_ERROR);
  /* Loops that wait for the flag end. */
  REFUSED(naa_test(&handle, &flag, &status), "state ERROR");
  CHECK(flag && status.state == NAAICE_ERROR);
  naa_handle gone = handle;
  CHECK(naa_finalize(&handle) == 0);
  REFUSED(naa_wait(&gone, &status), "no more");
  flag = true;
  REFUSED(naa_test(&gone, &flag, &status), "no more");
  REFUSED(naa_finalize(&gone), "no more");
  REFUSED(naa_finalize(&handle), "NULL");
}

/* Finalized in every state: the entry comes back, the peer lives on. */
static void states_finalize(void) {
  for (int state = 0; state < 6; state++) {
    naa_handle handle = created(SLEEP);
    bool flag = false;
    user_of(&handle, 100);
    if (state >= 1) {
      CHECK(naa_invoke(&handle) == 0);
    }
    if (state == 2) {
      CHECK(naa_test(&handle, &flag, NULL) == 0);
    }
    if (state == 3) {
      /* It has ended, and nobody looked. */
      pause_ms(150 * slowness());
    }
    if (state >= 4) {
      CHECK(naa_wait(&handle, NULL) == 0);
    }
    if (state == 5) {
      CHECK(naaice_write_data(handle.comm_ctx, 0) == 0);
    }
    CHECK(naa_finalize(&handle) == 0);
  }
  naa_handle handle = created(SUM);
  calls(&handle);
  CHECK(naa_finalize(&handle) == 0);
}

static void arguments_create(void) {
  naa_handle handle = {5, NULL};
  naa_param_t null = {NULL, 8, false}, huge = {in, ((size_t)1 << 31) + 1, false}, many[40];
  environment();
  for (int i = 0; i < 40; i++) {
    many[i] = inputs[0];
  }
  REFUSED(naa_create(SUM, inputs, 1, &output, 1, NULL), "handle is NULL");
  REFUSED(naa_create(SUM, inputs, 1, &output, 1, (naa_handle *)1), "not aligned");
  REFUSED(naa_create(SUM, NULL, 1, &output, 1, &handle), "input_params is NULL");
  CHECK(handle.function_code == 0 && handle.comm_ctx == NULL);
  REFUSED(naa_create(SUM, inputs, 1, NULL, 1, &handle), "output_params is NULL");
  const naa_function_code_t codes[] = {0, 128, 256 + 102, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    REFUSED(naa_create(codes[i], inputs, 1, &output, 1, &handle), "1 to 127");
  }
  REFUSED(naa_create(SUM, inputs, 0, &output, 1, &handle), "with 0 inputs");
  REFUSED(naa_create(SUM, many, 40, &output, 1, &handle), "1 to 31");
  REFUSED(naa_create(SUM, inputs, 1, many + 1, UINT32_MAX, &handle), "1 to 31");
  REFUSED(naa_create(SUM, &null, 1, &output, 1, &handle), "parameter 0 is NULL");
  REFUSED(naa_create(SUM, &huge, 1, &output, 1, &handle), "split it");
  /* Nothing is left behind by any of them. */
  use_entries();
}

static void arguments_spec(void) {
  static const char *const bad[] = {"x",        "1.2.3.4:1:1",     "1.2.3.4:1:1:1:1", "1.2.3.4:65536:1:1", "1.2.3.4:1:128:1",
                                    ":1:1:1",   "[::1:1:1:1",      "1.2.3.4:1:1:-1",  "1.2.3.4:%s:1:1",    "host..:1:1:1",
                                    ",,,",      "1.2.3.4:1:0:1",   "1.2.3.4:0x1:1:1", "1.2.3.4:1:1:1,x"};
  naa_handle handle;
  environment();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("NAA_SPEC", bad[i], 1);
    if (naa_create(1, inputs, 1, &output, 1, &handle) != -1) {
      printf("NAA_SPEC=%s\n", bad[i]);
      CHECK(false);
    }
  }
  unsetenv("NAA_SPEC");
  REFUSED(naa_create(1, inputs, 1, &output, 1, &handle), "NAA_SPEC is not set");
  environment();
  setenv("NAA_LOCAL_IP", "nowhere", 1);
  REFUSED(naa_create(SUM, inputs, 1, &output, 1, &handle), "nowhere");
  setenv("NAA_LOCAL_IP", "192.0.2.99", 1);
  REFUSED(naa_create(SUM, inputs, 1, &output, 1, &handle), "192.0.2.99");
  environment();
  setenv("NAA_PROVIDER", "best", 1);
  REFUSED(naa_create(SUM, inputs, 1, &output, 1, &handle), "NAA_PROVIDER");
}

typedef int with_handle(naa_handle *handle);
static int test_of(naa_handle *handle) {
  naa_status status;
  bool flag;
  return naa_test(handle, &flag, &status);
}
static int wait_of(naa_handle *handle) { return naa_wait(handle, NULL); }

static void handles(with_handle *call) {
  void *bad[NONSENSE];
  naa_handle handle = {SUM, NULL};
  nonsense(bad);
  REFUSED(call(NULL), "handle is NULL");
  REFUSED(call((naa_handle *)3), "not aligned");
  REFUSED(call(&handle), "NULL");
  for (int i = 0; i < NONSENSE; i++) {
    handle.comm_ctx = (struct naaice_communication_context *)bad[i];
    REFUSED(call(&handle), "nothing of this library");
  }
}

static void arguments_invoke(void) { handles(naa_invoke); }
static void arguments_wait(void) { handles(wait_of); }
static void arguments_finalize(void) { handles(naa_finalize); }
static void arguments_test(void) {
  handles(test_of);
  naa_handle handle = created(SUM);
  naa_status status;
  CHECK(naa_invoke(&handle) == 0);
  REFUSED(naa_test(&handle, NULL, &status), "flag is NULL");
  CHECK(naa_wait(&handle, (naa_status *)1) == 0);
  calls(&handle);
  CHECK(naa_finalize(&handle) == 0);
}

static const struct row rows[] = {
    {"naa_create", "use, inputs and outputs", use_create, 10, false},
    {"naa_create", "use, an output at an input's address", use_in_place, 10, false},
    {"naa_create", "use, single send", use_single_send, 10, false},
    {"naa_create", "use, entries of NAA_SPEC", use_entries, 20, false},
    {"naa_create", "arguments", arguments_create, 20, false},
    {"naa_create", "arguments, environment", arguments_spec, 20, false},
    {"naa_invoke", "use, and naa_test", use_test, 10, false},
    {"naa_invoke", "states", states_invoke, 10, false},
    {"naa_invoke", "arguments", arguments_invoke, 10, false},
    {"naa_test", "states, and naa_wait", states_wait, 10, false},
    {"naa_test", "arguments", arguments_test, 10, false},
    {"naa_wait", "use, return codes", use_wait, 10, false},
    {"naa_wait", "errors, the timeout", errors_wait, 10, false},
    {"naa_wait", "arguments", arguments_wait, 10, false},
    {"naa_finalize", "states", states_finalize, 20, false},
    {"naa_finalize", "arguments", arguments_finalize, 10, false},
};

MAIN(rows)
