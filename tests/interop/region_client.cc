// SPDX-License-Identifier: Apache-2.0
// A client whose memory is a region that its store was given, as an engine's is: region_client URI SIZE_BYTES, then a
// line for each operation on its input and a line of JSON for each outcome on its output:
//
//   put KEY FILE [absent]             the file's bytes
//   get KEY FILE SIZE [OFFSET LENGTH] into a buffer of this size, which is in the file afterwards, whatever the outcome
//   describe
//
// A buffer is filled with 0xA5 before it is read into. Ends with its input.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/text.h"
#include "kvern/memory.h"
#include "kvern/store.h"

namespace {

using namespace kvern;

constexpr int untouched = 0xA5;

std::string file_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void tell(const Outcome& outcome) {
    std::cout << "{\"status\": " << json_text(to_string(outcome.status))
              << ", \"error\": " << json_text(outcome.error.message) << ", \"bytes\": " << outcome.bytes
              << ", \"size\": " << outcome.stat.size_bytes << ", \"etag\": " << json_text(outcome.stat.etag) << "}"
              << std::endl;
}

void put(Store& store, Region& region, std::istringstream& words) {
    std::string path, condition;
    Op op;
    op.kind = OpKind::put;
    words >> op.key >> path >> condition;
    if (condition == "absent") op.condition = Condition::absent;
    const auto bytes = file_bytes(path);
    const auto lease = region.try_lease(bytes.size());
    if (!lease) return tell({});
    std::memcpy(lease->data(), bytes.data(), bytes.size());
    op.buffers = {{lease->data(), bytes.size()}};
    tell(run(store, std::move(op)));
}

void get(Store& store, Region& region, std::istringstream& words) {
    std::string path;
    std::size_t size = 0;
    Op op;
    op.kind = OpKind::get;
    words >> op.key >> path >> size;
    if (!(words >> op.offset >> op.length)) {
        op.offset = 0;
        op.length = whole_value;
    }
    const auto lease = region.try_lease(size);
    if (!lease) return tell({});
    std::memset(lease->data(), untouched, size);
    op.buffers = {{lease->data(), size}};
    const auto outcome = run(store, std::move(op));
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(lease->data()), static_cast<std::streamsize>(size));
    tell(outcome);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    RegionOptions options;
    options.size_bytes = std::stoul(argv[2]);
    auto region = Region::create(options);
    auto store = open_store(argv[1]);
    if (!region || !store) {
        std::cerr << (region ? store.error().message : region.error().message) << std::endl;
        return 1;
    }
    (*store)->attach(*region);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "put") put(**store, **region, words);
        if (what == "get") get(**store, **region, words);
        if (what == "describe") std::cout << json_text((*store)->describe()) << std::endl;
    }
    return (*store)->close(std::chrono::seconds(20)) ? 0 : 3;
}
