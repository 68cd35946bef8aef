/* The functions of CANN's runtime whose results MindSpore's plugin uses, under simulation, before any kernel runs. */
#include <stdlib.h>

const char *aclrtGetSocName(void) { return "Ascend910B1"; }
int aclrtGetDeviceCount(unsigned *count) { *count = 8; return 0; }

/* 64 GB of HBM: the memory planner only compares with it. */
int aclrtGetMemInfo(int kind, size_t *available, size_t *total) { *available = 60UL << 30; *total = 64UL << 30; return 0; }
int aclrtMalloc(void **address, size_t size, int policy) { *address = malloc(size); return 0; }
int aclrtMallocHost(void **address, size_t size) { *address = malloc(size); return 0; }

/* Handles that must not be null. */
int aclrtCreateContext(void **context, int device) { *context = malloc(8); return 0; }
int aclrtCreateStream(void **stream) { *stream = malloc(8); return 0; }
int aclrtCreateStreamWithConfig(void **stream, unsigned priority, unsigned flags) { *stream = malloc(8); return 0; }
void *aclopCreateAttr(void) { return malloc(8); }
void *aclCreateTensorDesc(void) { return malloc(8); }
void *aclCreateDataBuffer(void) { return malloc(8); }
