/* The operators "Tap" and "DeviceTap" of ONNX Runtime: each shows its one input, where ONNX Runtime holds it, to a
 * function of the process; the second one in the memory of a CUDA device, with the stream on which it is made.
 *
 * Built by hatch_build.py; taps.py loads it and sets the function. Of ONNX Runtime's C interface the first 194
 * functions of version 10 or later are used by their place in the table, which never changes. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifndef SOURCE
#define SOURCE ""
#endif

enum place {
  CREATE_CUSTOM_OP_DOMAIN = 26,
  CUSTOM_OP_DOMAIN_ADD = 27,
  ADD_CUSTOM_OP_DOMAIN = 28,
  GET_TENSOR_MUTABLE_DATA = 51,
  GET_TENSOR_ELEMENT_TYPE = 60,
  GET_DIMENSIONS_COUNT = 61,
  GET_DIMENSIONS = 62,
  GET_TENSOR_TYPE_AND_SHAPE = 65,
  KERNEL_INFO_GET_ATTRIBUTE_INT64 = 86,
  KERNEL_CONTEXT_GET_INPUT = 90,
  RELEASE_STATUS = 93,
  RELEASE_TENSOR_TYPE_AND_SHAPE_INFO = 99,
  KERNEL_CONTEXT_GET_GPU_COMPUTE_STREAM = 193,
};

typedef void *Status; /* NULL: done */
typedef void (*Function)(void);
typedef struct {
  Function at[194];
} Api;
typedef struct {
  const Api *(*get)(uint32_t version);
  const char *(*version)(void);
} ApiBase;

typedef struct Operator Operator;
struct Operator {
  uint32_t version;
  void *(*create)(const Operator *, const Api *, const void *info);
  const char *(*name)(const Operator *);
  const char *(*provider)(const Operator *);
  int (*input_type)(const Operator *, size_t);
  size_t (*inputs)(const Operator *);
  int (*output_type)(const Operator *, size_t);
  size_t (*outputs)(const Operator *);
  void (*compute)(void *, void *context);
  void (*destroy)(void *);
  int (*input_characteristic)(const Operator *, size_t);
  int (*output_characteristic)(const Operator *, size_t);
};

typedef struct {
  const Api *api;
  int64_t session, number;
  int on_device;
} Tap;

/* rank -1: the tensor could not be read. data lives as long as the call, and on a device until what was queued on the
 * stream by then has run. stream: -1 in the host's memory. */
typedef void (*Receiver)(int64_t session, int64_t number, void *data, int32_t type, int32_t rank, const int64_t *shape,
                         int64_t stream);
static Receiver receiver;

#define RANKS 64
#define CALL(api, place, kind, ...) (((Status(*) kind)(api)->at[place])(__VA_ARGS__))
#define RELEASE(api, place, thing) (((void (*)(void *))(api)->at[place])(thing))

static int failed(const Api *api, Status status) {
  if (status != NULL)
    RELEASE(api, RELEASE_STATUS, status);
  return status != NULL;
}

static int64_t attribute(const Api *api, const void *info, const char *name) {
  int64_t value = -1;
  failed(api, CALL(api, KERNEL_INFO_GET_ATTRIBUTE_INT64, (const void *, const char *, int64_t *), info, name, &value));
  return value;
}

#include <stdlib.h>

static void *created(const Api *api, const void *info, int on_device) {
  Tap *tap = malloc(sizeof *tap);
  if (tap != NULL)
    *tap = (Tap){api, attribute(api, info, "session"), attribute(api, info, "place"), on_device};
  return tap;
}

static void *create(const Operator *op, const Api *api, const void *info) { return (void)op, created(api, info, 0); }

static void *create_on_device(const Operator *op, const Api *api, const void *info) {
  return (void)op, created(api, info, 1);
}

static int described(const Api *api, const void *value, int32_t *type, size_t *rank, int64_t *shape) {
  void *info = NULL;
  int bad, kind = 0;
  if (failed(api, CALL(api, GET_TENSOR_TYPE_AND_SHAPE, (const void *, void **), value, &info)))
    return 0;
  bad = failed(api, CALL(api, GET_TENSOR_ELEMENT_TYPE, (const void *, int *), info, &kind)) ||
        failed(api, CALL(api, GET_DIMENSIONS_COUNT, (const void *, size_t *), info, rank)) || *rank > RANKS ||
        failed(api, CALL(api, GET_DIMENSIONS, (const void *, int64_t *, size_t), info, shape, *rank));
  RELEASE(api, RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, info);
  *type = kind;
  return !bad;
}

static void compute(void *kernel, void *context) {
  const Tap *tap = kernel;
  const void *value = NULL;
  void *data = NULL, *stream = NULL;
  int32_t type = 0;
  size_t rank = 0;
  int64_t shape[RANKS];
  if (tap == NULL || receiver == NULL)
    return;
  if (failed(tap->api, CALL(tap->api, KERNEL_CONTEXT_GET_INPUT, (const void *, size_t, const void **), context, 0,
                            &value)) ||
      value == NULL || !described(tap->api, value, &type, &rank, shape) ||
      failed(tap->api, CALL(tap->api, GET_TENSOR_MUTABLE_DATA, (const void *, void **), value, &data)) ||
      (tap->on_device && failed(tap->api, CALL(tap->api, KERNEL_CONTEXT_GET_GPU_COMPUTE_STREAM,
                                               (const void *, void **), context, &stream))))
    receiver(tap->session, tap->number, NULL, 0, -1, NULL, -1);
  else
    receiver(tap->session, tap->number, data, type, (int32_t)rank, shape, tap->on_device ? (int64_t)(intptr_t)stream : -1);
}

static const char *name(const Operator *op) { return (void)op, "Tap"; }
static const char *name_on_device(const Operator *op) { return (void)op, "DeviceTap"; }
static const char *provider(const Operator *op) { return (void)op, "CPUExecutionProvider"; }
static const char *provider_of_device(const Operator *op) { return (void)op, "CUDAExecutionProvider"; }
static int any_type(const Operator *op, size_t index) { return (void)op, (void)index, 0; }
static size_t one(const Operator *op) { return (void)op, 1; }
static size_t none(const Operator *op) { return (void)op, 0; }
static int required(const Operator *op, size_t index) { return (void)op, (void)index, 0; }

static const Operator operator_ = {
    8, create, name, provider, any_type, one, any_type, none, compute, free, required, required,
};
/* Of version 8: its input lies in the provider's own memory. What CUDA's provider leaves to the CPU is shown there. */
static const Operator on_device_ = {
    8,   create_on_device, name_on_device, provider_of_device, any_type, one, any_type, none, compute, free, required,
    required,
};
static const Operator left_over_ = {
    8, create, name_on_device, provider, any_type, one, any_type, none, compute, free, required, required,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *domain;

/* ONNX Runtime calls this for each session; the domain is one for all. */
Status RegisterCustomOps(void *options, const ApiBase *base) {
  const Api *api = base->get(10);
  Status status = NULL;
  pthread_mutex_lock(&lock);
  if (domain == NULL) {
    status = CALL(api, CREATE_CUSTOM_OP_DOMAIN, (const char *, void **), "precision_debug.taps", &domain);
    if (status == NULL)
      status = CALL(api, CUSTOM_OP_DOMAIN_ADD, (void *, const Operator *), domain, &operator_);
    if (status == NULL)
      status = CALL(api, CUSTOM_OP_DOMAIN_ADD, (void *, const Operator *), domain, &on_device_);
    if (status == NULL)
      status = CALL(api, CUSTOM_OP_DOMAIN_ADD, (void *, const Operator *), domain, &left_over_);
  }
  pthread_mutex_unlock(&lock);
  return status != NULL ? status : CALL(api, ADD_CUSTOM_OP_DOMAIN, (void *, void *), options, domain);
}

void pd_receive(Receiver with) { receiver = with; }
const char *pd_source(void) { return SOURCE; }
