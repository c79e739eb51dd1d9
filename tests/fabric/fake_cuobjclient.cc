// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's libcuobjclient.so.1, with the functions that Kvern uses as the documentation has them. Its
// descriptors name memory of this process for real: rkey is the process's id, so that a server of tests can move the
// bytes by process_vm_readv and process_vm_writev; lid is 1 for a GET and 2 for a PUT; dctn counts. Nothing of it is
// RDMA.
//
// KVERN_FAKE_CUOBJECT makes it fail: throws, unconnected, unregistered, mute, another-range, suffixed.
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>

enum cuObjErr_enum { CU_OBJ_SUCCESS = 0, CU_OBJ_FAIL = 1 };
enum cuObjProto_enum { CUOBJ_PROTO_RDMA_DC_V1 = 1001 };
enum cuObjOpType_enum { CUOBJ_GET = 0, CUOBJ_PUT = 1 };
struct CUObjIOOps {
    ssize_t (*get)(const void*, char*, size_t, off_t, const void*);
    ssize_t (*put)(const void*, const char*, size_t, off_t, const void*);
};

class cuObjClient {
  public:
    explicit cuObjClient(CUObjIOOps& operations, cuObjProto_enum protocol);
    ~cuObjClient();
    cuObjErr_enum cuMemObjGetDescriptor(void* begin, size_t size);
    cuObjErr_enum cuMemObjPutDescriptor(void* begin);
    cuObjErr_enum cuMemObjGetRDMAToken(void* begin, size_t size, size_t offset, cuObjOpType_enum operation,
                                       char** text);
    cuObjErr_enum cuMemObjPutRDMAToken(char* text);
    bool isConnected();

  private:
    [[maybe_unused]] std::array<void*, 9> room_;  // as large as the real one
};

namespace {

constexpr size_t registration_bytes_max = (size_t{4} << 30) - (size_t{64} << 10);

std::mutex mutex;
std::map<char*, size_t> registrations;
std::set<char*> tokens;
long clients = 0, minted = 0, refused = 0, last_operation = -1;
std::atomic<long> inside{0}, overlaps{0};

bool told(std::string_view what) {
    const char* const given = std::getenv("KVERN_FAKE_CUOBJECT");
    return given != nullptr && given == what;
}

// Calls that come while another is inside, which the real one has never promised to stand.
struct Inside {
    Inside() {
        if (inside.fetch_add(1) > 0) ++overlaps;
        std::this_thread::yield();  // so that others come, if they may
    }
    ~Inside() { --inside; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

cuObjErr_enum refuse() {
    ++refused;
    return CU_OBJ_FAIL;
}

}  // namespace

cuObjClient::cuObjClient(CUObjIOOps& operations, cuObjProto_enum protocol) : room_{} {
    if (told("throws")) throw std::runtime_error("as told");
    if (operations.get == nullptr || operations.put == nullptr || protocol != CUOBJ_PROTO_RDMA_DC_V1) std::abort();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // for the test's server, where Yama is strict
    const std::lock_guard lock(mutex);
    ++clients;
}

cuObjClient::~cuObjClient() {
    const std::lock_guard lock(mutex);
    --clients;
}

bool cuObjClient::isConnected() {
    const Inside here;
    return !told("unconnected");
}

cuObjErr_enum cuObjClient::cuMemObjGetDescriptor(void* begin, size_t size) {
    const Inside here;
    const std::lock_guard lock(mutex);
    auto* const memory = static_cast<char*>(begin);
    const bool wrong = memory == nullptr || size == 0 || size > registration_bytes_max;
    if (wrong || told("unregistered") || registrations.contains(memory)) return refuse();
    registrations[memory] = size;
    return CU_OBJ_SUCCESS;
}

cuObjErr_enum cuObjClient::cuMemObjPutDescriptor(void* begin) {
    const Inside here;
    const std::lock_guard lock(mutex);
    if (registrations.erase(static_cast<char*>(begin)) == 0) ++refused;
    return CU_OBJ_SUCCESS;  // whatever happens, as the real one
}

cuObjErr_enum cuObjClient::cuMemObjGetRDMAToken(void* begin, size_t size, size_t offset, cuObjOpType_enum operation,
                                                char** text) {
    const Inside here;
    const std::lock_guard lock(mutex);
    const auto found = registrations.find(static_cast<char*>(begin));
    if (found == registrations.end() || size == 0 || offset > found->second || size > found->second - offset) {
        return refuse();
    }
    if ((operation != CUOBJ_GET && operation != CUOBJ_PUT) || text == nullptr || told("mute")) return refuse();
    last_operation = operation;
    ++minted;
    constexpr size_t room = 160;
    auto* const written = static_cast<char*>(std::malloc(room));
    const auto address = reinterpret_cast<unsigned long>(begin) + offset + (told("another-range") ? 1 : 0);
    std::snprintf(written, room, "%016lx:%08lx:%08x:%04x:%06lx:1:00000000000000000000ffff7f000001", address, size,
                  static_cast<unsigned>(getpid()), static_cast<unsigned>(operation) + 1, minted & 0xffffffL);
    if (told("suffixed")) {
        const auto end = std::strlen(written);
        std::snprintf(written + end, room - end, ":%016lx:%016lx", address, size);
    }
    tokens.insert(written);
    *text = written;
    return CU_OBJ_SUCCESS;
}

cuObjErr_enum cuObjClient::cuMemObjPutRDMAToken(char* text) {
    const Inside here;
    const std::lock_guard lock(mutex);
    if (tokens.erase(text) == 0) return refuse();
    std::free(text);
    return CU_OBJ_SUCCESS;
}

// For tests: clients, registrations, registered_bytes, tokens (that are out), minted, refused, operation, overlaps.
extern "C" long kvern_fake_cuobject(const char* what) {
    const std::lock_guard lock(mutex);
    const std::string_view asked(what);
    if (asked == "clients") return clients;
    if (asked == "registrations") return static_cast<long>(registrations.size());
    if (asked == "tokens") return static_cast<long>(tokens.size());
    if (asked == "minted") return minted;
    if (asked == "refused") return refused;
    if (asked == "operation") return last_operation;
    if (asked == "overlaps") return overlaps;
    long bytes = 0;
    for (const auto& [begin, size] : registrations) bytes += static_cast<long>(size);
    return asked == "registered_bytes" ? bytes : -1;
}
