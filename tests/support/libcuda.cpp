// A driver that does nothing but answer, and writes down what it was asked: cuda-python loads it as libcuda.so.1.
// So a test sees what arrives behind cuda-python: names, types of arguments, structs, lifetimes.  Like the real one
// it refuses calls in a thread without a context.  Each line of the log is a function and its arguments.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef void* ptr;

static thread_local ptr here = 0;
static u64 made = 0x1000;
enum { DONE = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201 };

static FILE* log_file() {
  static FILE* file = fopen(getenv("KERNELAB_TEST_DRIVER_LOG"), "w");
  return file;
}

template <class... T> static int said(const char* name, T... given) {
  fprintf(log_file(), "%s", name);
  const u64 numbers[] = {0, (u64)given...};
  for (unsigned k = 1; k < sizeof numbers / sizeof *numbers; ++k) fprintf(log_file(), " %llu", numbers[k]);
  fprintf(log_file(), "\n"), fflush(log_file());
  return DONE;
}
template <class... T> static int inside(const char* name, T... given) {
  said(name, given...);
  return here ? DONE : INVALID_CONTEXT;
}
static u64 next() { return made += 0x100; }

#define DRIVER extern "C" int
DRIVER cuInit(unsigned flags) { return said("cuInit", flags); }
DRIVER cuDriverGetVersion(int* to) { return *to = 13000, said("cuDriverGetVersion"); }
DRIVER cuDeviceGetCount(int* to) { return *to = 1, said("cuDeviceGetCount"); }
DRIVER cuDeviceGet(int* to, int ordinal) { return *to = ordinal, said("cuDeviceGet", ordinal); }
DRIVER cuDevicePrimaryCtxRetain(ptr* to, int device) { return *to = (ptr)next(), said("cuDevicePrimaryCtxRetain", device); }
DRIVER cuCtxSetCurrent(ptr context) { return here = context, said("cuCtxSetCurrent", context); }
DRIVER cuDeviceGetAttribute(int* to, int what, int device) {
  *to = what == 75 ? 9 : what == 76 ? 0 : what == 16 ? 132 : 0;  // sm_90 of 132 processors
  return said("cuDeviceGetAttribute", what, device);
}
DRIVER cuDeviceGetDefaultMemPool(ptr* to, int device) { return *to = (ptr)0x900, said("cuDeviceGetDefaultMemPool", device); }
DRIVER cuMemPoolSetAttribute(ptr pool, int what, u64* value) { return said("cuMemPoolSetAttribute", pool, what, *value); }
DRIVER cuMemPoolGetAttribute(ptr pool, int what, u64* to) { return *to = 1000 + what, said("cuMemPoolGetAttribute", pool, what); }
struct access { int type, id, flags; };
DRIVER cuMemPoolSetAccess(ptr pool, const access* to, size_t count) {
  return said("cuMemPoolSetAccess", pool, to->type, to->id, to->flags, count);
}
DRIVER cuCtxSynchronize() { return inside("cuCtxSynchronize"); }
DRIVER cuMemGetInfo(size_t* free, size_t* total) { return *free = 5000, *total = 9000, inside("cuMemGetInfo"); }
DRIVER cuMemAllocAsync(u64* to, size_t nbytes, ptr stream) { return *to = next(), inside("cuMemAllocAsync", nbytes, stream); }
DRIVER cuMemFreeAsync(u64 address, ptr stream) { return inside("cuMemFreeAsync", address, stream); }
DRIVER cuMemHostAlloc(ptr* to, size_t nbytes, unsigned flags) { return *to = malloc(nbytes), inside("cuMemHostAlloc", nbytes, flags); }
DRIVER cuMemHostGetDevicePointer(u64* to, ptr host, unsigned flags) {
  return *to = (u64)host, inside("cuMemHostGetDevicePointer", host, flags);
}
DRIVER cuMemFreeHost(ptr host) { return free(host), inside("cuMemFreeHost", host); }
DRIVER cuPointerGetAttribute(ptr to, int what, u64 address) {
  if (address < 0x1000) return INVALID_VALUE;
  *(int*)to = what == 2 ? 2 : 0;  // memory of a device, the first
  return inside("cuPointerGetAttribute", what, address);
}
DRIVER cuMemcpyHtoDAsync(u64 to, const void* from, size_t nbytes, ptr stream) {
  return inside("cuMemcpyHtoDAsync", to, *(const unsigned char*)from, nbytes, stream);
}
DRIVER cuMemcpyDtoHAsync(void* to, u64 from, size_t nbytes, ptr stream) {
  return memset(to, 7, nbytes), inside("cuMemcpyDtoHAsync", from, nbytes, stream);
}
DRIVER cuMemcpyDtoDAsync(u64 to, u64 from, size_t nbytes, ptr stream) { return inside("cuMemcpyDtoDAsync", to, from, nbytes, stream); }
DRIVER cuMemsetD8Async(u64 to, unsigned char value, size_t count, ptr stream) { return inside("cuMemsetD8Async", to, value, count, stream); }
DRIVER cuMemsetD16Async(u64 to, unsigned short value, size_t count, ptr stream) { return inside("cuMemsetD16Async", to, value, count, stream); }
DRIVER cuMemsetD32Async(u64 to, unsigned value, size_t count, ptr stream) { return inside("cuMemsetD32Async", to, value, count, stream); }
DRIVER cuModuleLoadData(ptr* to, const void* image) { return *to = (ptr)next(), inside("cuModuleLoadData", *(const unsigned*)image); }
DRIVER cuModuleGetFunction(ptr* to, ptr module, const char* name) {
  return *to = (ptr)next(), inside("cuModuleGetFunction", module, strcmp(name, "f_entry"));
}
DRIVER cuFuncGetAttribute(int* to, int what, ptr function) { return *to = 640, inside("cuFuncGetAttribute", what, function); }
DRIVER cuLaunchKernel(ptr function, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                      unsigned shared, ptr stream, ptr* given, ptr* extra) {
  const u64* slots = (const u64*)given[0];
  inside("cuLaunchKernel", function, x, y, z, width, height, depth, shared, stream, extra);
  return said("given", slots[0], slots[1], slots[2], *(u64*)given[1]);
}
DRIVER cuStreamCreate(ptr* to, unsigned flags) { return *to = (ptr)next(), inside("cuStreamCreate", flags); }
DRIVER cuStreamDestroy(ptr stream) { return inside("cuStreamDestroy", stream); }
DRIVER cuStreamQuery(ptr stream) { return inside("cuStreamQuery", stream); }
DRIVER cuStreamSynchronize(ptr stream) { return inside("cuStreamSynchronize", stream); }
DRIVER cuStreamWaitEvent(ptr stream, ptr event, unsigned flags) { return inside("cuStreamWaitEvent", stream, event, flags); }
DRIVER cuStreamBeginCapture(ptr stream, int mode) { return inside("cuStreamBeginCapture", stream, mode); }
DRIVER cuStreamEndCapture(ptr stream, ptr* to) { return *to = (ptr)next(), inside("cuStreamEndCapture", stream); }
DRIVER cuGraphInstantiateWithFlags(ptr* to, ptr graph, u64 flags) { return *to = (ptr)next(), inside("cuGraphInstantiateWithFlags", graph, flags); }
DRIVER cuGraphDestroy(ptr graph) { return inside("cuGraphDestroy", graph); }
DRIVER cuGraphExecDestroy(ptr graph) { return inside("cuGraphExecDestroy", graph); }
DRIVER cuGraphLaunch(ptr graph, ptr stream) { return inside("cuGraphLaunch", graph, stream); }
DRIVER cuEventCreate(ptr* to, unsigned flags) { return *to = (ptr)next(), inside("cuEventCreate", flags); }
DRIVER cuEventDestroy(ptr event) { return inside("cuEventDestroy", event); }
DRIVER cuEventRecord(ptr event, ptr stream) { return inside("cuEventRecord", event, stream); }
DRIVER cuEventQuery(ptr event) { return inside("cuEventQuery", event); }
DRIVER cuEventElapsedTime(float* to, ptr start, ptr end) { return *to = 2.5f, inside("cuEventElapsedTime", start, end); }

// cuda-python asks for all functions by name; of those that are not above it hears that there are none.
DRIVER cuGetProcAddress_v2(const char* name, ptr* to, int, u64, int* status) {
  *to = strcmp(name, "cuGetProcAddress") ? dlsym(RTLD_DEFAULT, name) : (ptr)cuGetProcAddress_v2;
  if (!*to) *to = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
  if (status) *status = *to ? 0 : 1;
  return DONE;
}
