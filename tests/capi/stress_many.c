/* Many handles in one process, and threads each with their own. */
#include "host.h"

enum { HANDLES = 200, THREADS = 25, EACH = HANDLES / THREADS };

static naa_handle handles[HANDLES];
static char data[HANDLES][2][BYTES];

static void spec(unsigned function, unsigned entries) {
  static char text[HANDLES * 80];
  size_t at = 0;
  for (unsigned i = 0; i < entries; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s:%u:%u:1", i ? "," : "", server_ip(), server_port(), function);
  }
  setenv("NAA_SPEC", text, 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
}

static void create(int i, naa_function_code_t function) {
  naa_param_t input = {data[i][0], BYTES, false}, output = {data[i][1], BYTES, false};
  CHECK(naa_create(function, &input, 1, &output, 1, &handles[i]) == 0);
}

static void begin(int i, unsigned round) {
  memset(data[i][0], i, BYTES);
  memset(data[i][1], 0xee, BYTES);
  set_user(handles[i].comm_ctx, round);
  CHECK(naa_invoke(&handles[i]) == 0);
}

static void judge(int i, unsigned round) {
  all_are(data[i][1], BYTES, (unsigned)i * BYTES + round);
}

/* All have a call in flight at once. */
static void at_once(void) {
  spec(SUM, HANDLES);
  for (int i = 0; i < HANDLES; i++) {
    create(i, SUM);
  }
  for (unsigned round = 0; round < 20; round++) {
    for (int i = 0; i < HANDLES; i++) {
      begin(i, round);
    }
    for (int i = 0; i < HANDLES; i++) {
      naa_status status;
      bool flag = false;
      while (round % 2 == 0 && !flag) {
        CHECK(naa_test(&handles[i], &flag, &status) == 0);
      }
      CHECK(naa_wait(&handles[i], &status) == 0 && status.state == NAAICE_FINISHED && status.naa_error == NAA_SUCCESS);
      judge(i, round);
    }
  }
  for (int i = 0; i < HANDLES; i++) {
    CHECK(naa_finalize(&handles[i]) == 0);
  }
}

static void *own_handles(void *argument) {
  const int first = (int)(intptr_t)argument * EACH;
  for (int times = 0; times < 3; times++) {
    for (int i = first; i < first + EACH; i++) {
      create(i, SUM);
    }
    for (unsigned round = 0; round < 30; round++) {
      for (int i = first; i < first + EACH; i++) {
        begin(i, round);
      }
      for (int i = first; i < first + EACH; i++) {
        CHECK(naa_wait(&handles[i], NULL) == 0);
        judge(i, round);
      }
      /* The error is this thread's. */
      REFUSED(naa_wait(NULL, NULL), "naa_wait");
    }
    for (int i = first; i < first + EACH; i++) {
      CHECK(naa_finalize(&handles[i]) == 0);
    }
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];
  spec(SUM, HANDLES);
  for (intptr_t i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&all[i], NULL, own_handles, (void *)i) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(all[i], NULL) == 0);
  }
}

static void *own_contexts(void *argument) {
  for (int times = 0; times < 20; times++) {
    for (int stage = CREATED; stage < STAGES; stage++) {
      struct host host;
      host_in(&host, (stage + (int)(intptr_t)argument) % STAGES);
      host_ends(&host, (stage + (int)(intptr_t)argument) % STAGES);
    }
    struct host host;
    host_create(&host, SUM);
    host_goes_on(&host);
    host_ends(&host, FINISHED);
  }
  return NULL;
}

/* Contexts come and go in every state, on many threads. */
static void contexts(void) {
  pthread_t all[8];
  (void)ulog_output_level_set_all(ULOG_LEVEL_FATAL);
  for (intptr_t i = 0; i < 8; i++) {
    CHECK(pthread_create(&all[i], NULL, own_contexts, (void *)i) == 0);
  }
  for (int i = 0; i < 8; i++) {
    CHECK(pthread_join(all[i], NULL) == 0);
  }
}

/* One handle that threads fight for: each call is made or refused, none is lost, nothing breaks. */
static struct host contested;
static int made;

static void *fights(void *unused) {
  for (int times = 0; times < 500; times++) {
    if (naaice_do_data_transfer(contested.ctx) == 0) {
      __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    } else {
      CHECK(strstr(WHY, "in use by a call") != NULL);
    }
    (void)naaice_set_bytes_to_send(contested.ctx, 0, times % BYTES);
    (void)naaice_poll_cq_nonblocking(contested.ctx);
  }
  return unused;
}

static void one_context(void) {
  pthread_t all[6];
  (void)ulog_output_level_set_all(ULOG_LEVEL_FATAL);
  host_in(&contested, AGREED);
  for (int i = 0; i < 6; i++) {
    CHECK(pthread_create(&all[i], NULL, fights, NULL) == 0);
  }
  for (int i = 0; i < 6; i++) {
    CHECK(pthread_join(all[i], NULL) == 0);
  }
  CHECK(made > 0 && contested.ctx->no_rpc_calls == (unsigned)made);
  host_goes_on(&contested);
  host_ends(&contested, FINISHED);
}

static const struct row rows[] = {
    {"naa_create", "edges, 200 handles at once", at_once, 60, false},
    {"naa_create", "edges, 25 threads with 8 handles each", threads, 90, false},
    {"naaice_disconnect_and_cleanup", "edges, in every state on 8 threads", contexts, 90, false},
    {"naaice_do_data_transfer", "edges, 6 threads and one context", one_context, 60, false},
};

MAIN(rows)
