// SPDX-License-Identifier: Apache-2.0
// kvern_bench_crc: what S3's checksums and signatures cost. Sums 256 MiB of memory and 16 KiB of cache by every
// algorithm on each path this CPU has, beside reading and copying the same bytes, and prints the ratio to reading; then
// signs and verifies requests.
//
// Each round runs all ways one after the other, so that what else happens on the machine meets all alike. The best
// round of each way counts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/crc32.h"
#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "http/checksum.h"
#include "http/sigv4.h"

namespace {

using namespace kvern;

constexpr std::size_t memory_bytes = std::size_t{256} << 20;
constexpr std::size_t cached_bytes = std::size_t{16} << 10;
constexpr std::size_t cached_turns = std::size_t{1} << 10;
constexpr int requests = 2000;  // short turns: one in between others is undisturbed

struct Options {
    bool json = false;
    int rounds = 7;
};

struct Way {
    std::string name;
    std::string path;
    std::function<void(const std::byte*, std::size_t)> run;
    double memory_seconds = 1e9;
    double cached_seconds = 1e9;

    double memory_gbps() const { return static_cast<double>(memory_bytes) / memory_seconds / 1e9; }
    double cached_gbps() const { return static_cast<double>(cached_bytes * cached_turns) / cached_seconds / 1e9; }
};

struct Cost {
    std::string_view name;
    double microseconds = 1e9;
};

constexpr std::string_view usage = "usage: kvern_bench_crc [--json] [--rounds N]\n";

[[noreturn]] void refuse(std::string_view why) {
    fmt::print(stderr, "kvern_bench_crc: {}\n{}", why, usage);
    std::exit(2);
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--json") {
            options.json = true;
        } else if (name == "--rounds" && i + 1 < argc) {
            const std::string_view text = argv[++i];
            const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), options.rounds);
            if (error != std::errc{} || rest != text.data() + text.size() || options.rounds < 1) {
                refuse("--rounds takes a whole number from 1");
            }
        } else if (name == "--help" || name == "-h") {
            fmt::print("{}", usage);
            std::exit(0);
        } else {
            refuse(fmt::format("unknown option '{}'", name));
        }
    }
    return options;
}

// Whatever was computed counts as used.
template <class T>
void keep(const T& value) {
    asm volatile("" : : "g"(&value) : "memory");
}

void read_plainly(const std::byte* data, std::size_t size_bytes) {
    std::uint64_t sums[8] = {};
    for (std::size_t at = 0; at + sizeof sums <= size_bytes; at += sizeof sums) {
        std::uint64_t words[8];
        std::memcpy(words, data + at, sizeof words);
        for (std::size_t i = 0; i < 8; ++i) sums[i] ^= words[i];
    }
    keep(sums);
}

#if defined(__x86_64__)
// Wide registers, and asked for ahead as the sums do.
__attribute__((target("avx2"))) void read_by_avx2(const std::byte* data, std::size_t size_bytes) {
    __m256i sums[4] = {};
    for (std::size_t at = 0; at + sizeof sums <= size_bytes; at += sizeof sums) {
        __builtin_prefetch(data + at + 1024);
        __builtin_prefetch(data + at + 1024 + 64);
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
            const auto* const from = reinterpret_cast<const __m256i*>(data + at) + i;
            sums[i] = _mm256_xor_si256(sums[i], _mm256_loadu_si256(from));
        }
    }
    keep(sums);
}
#endif

void read_all(const std::byte* data, std::size_t size_bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") != 0) return read_by_avx2(data, size_bytes);
#endif
    read_plainly(data, size_bytes);
}

template <class Word>
void add_crc(std::vector<Way>& ways, std::string_view name, std::initializer_list<std::string_view> paths,
             bool (*with)(std::string_view, Word&, const void*, std::size_t)) {
    for (const std::string_view path : paths) {
        Word crc = 0;
        if (!with(path, crc, "", 0)) continue;
        ways.push_back(
            {std::string(name), std::string(path), [with, path](const std::byte* data, std::size_t size_bytes) {
                 Word sum = 0;
                 with(path, sum, data, size_bytes);
                 keep(sum);
             }});
    }
}

std::vector<Way> all_ways(std::byte* copy) {
    std::vector<Way> ways;
    ways.push_back({"read", "", read_all});
    ways.push_back({"memcpy", "", [copy](const std::byte* data, std::size_t size_bytes) {
                        std::memcpy(copy, data, size_bytes);
                        keep(*copy);
                    }});
    add_crc(ways, "CRC64NVME", {"vpclmulqdq512", "vpclmulqdq", "pclmulqdq", "table"}, crc64nvme_with);
    add_crc(ways, "CRC32", {"vpclmulqdq512", "vpclmulqdq", "pclmulqdq", "table"}, crc32_with);
    add_crc(ways, "CRC32C", {"vpclmulqdq", "sse4.2+avx2", "table"}, crc32c_with);
    for (const auto algorithm :
         {http::ChecksumAlgorithm::sha1, http::ChecksumAlgorithm::sha256, http::ChecksumAlgorithm::md5}) {
        ways.push_back(
            {std::string(to_string(algorithm)), "openssl", [algorithm](const std::byte* data, std::size_t size_bytes) {
                 auto sum = http::Checksum::make(algorithm);
                 if (!sum) refuse(sum.error().message);
                 sum->update({data, size_bytes});
                 keep(sum->finish());
             }});
    }
    return ways;
}

template <class Run>
double seconds(Run run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(Way& way, const std::byte* memory) {
    way.memory_seconds = std::min(way.memory_seconds, seconds([&] { way.run(memory, memory_bytes); }));
    way.cached_seconds = std::min(way.cached_seconds, seconds([&] {
                                      for (std::size_t i = 0; i < cached_turns; ++i) way.run(memory, cached_bytes);
                                  }));
}

// A GET of one object, as the client of a store sends it.
class Signatures {
  public:
    std::vector<Cost> measure(int rounds) {
        Cost sign{"sign"};
        Cost verify{"verify"};
        for (int round = 0; round < rounds; ++round) {
            sign.microseconds = std::min(sign.microseconds, microseconds([&] { keep(this->sign()); }));
            verify.microseconds = std::min(verify.microseconds, microseconds([&] { this->verify(); }));
        }
        return {sign, verify};
    }

  private:
    http::SignedHeaders sign() { return signer_.sign({"GET", path_, {}, headers_}, http::unsigned_payload, now_); }

    void verify() {
        if (received_.empty()) {
            const auto added = sign();
            authorization_ = added.authorization;
            date_ = added.amz_date;
            received_ = {{"host", headers_[0].value},
                         {"user-agent", "bench"},
                         {"range", headers_[1].value},
                         {"authorization", authorization_},
                         {"x-amz-content-sha256", http::unsigned_payload},
                         {"x-amz-date", date_}};
        }
        const http::RequestHead head{"GET", path_, {}, received_};
        const auto authorization = http::parse_authorization(head);
        if (!authorization || !verifier_.verify(*authorization, head, credentials_, now_))
            refuse("a signature is wrong");
    }

    template <class Run>
    static double microseconds(Run run) {
        return seconds([&] {
                   for (int i = 0; i < requests; ++i) run();
               }) /
               requests * 1e6;
    }

    const http::Credentials credentials_{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
    const http::sys_seconds now_{std::chrono::seconds(1369353600)};
    const std::string path_ = "/bucket/kv/" + std::string(64, 'a') + "/00/" + std::string(64, 'b');
    const std::vector<http::HeaderView> headers_{{"host", "storage.example.com:9000"}, {"range", "bytes=0-16777215"}};
    http::Signer signer_{credentials_, "us-east-1"};
    http::Verifier verifier_{"us-east-1"};
    std::string authorization_;
    std::string date_;
    std::vector<http::HeaderView> received_;
};

void print_table(const std::vector<Way>& ways, const std::vector<Cost>& costs) {
    fmt::print("{:<10} {:<14} {:>14} {:>14} {:>16}\n", "checksum", "path", "256 MiB GB/s", "16 KiB GB/s",
               "time / reading");
    for (const Way& way : ways) {
        fmt::print("{:<10} {:<14} {:>14.2f} {:>14.2f} {:>16.2f}\n", way.name, way.path, way.memory_gbps(),
                   way.cached_gbps(), way.memory_seconds / ways.front().memory_seconds);
    }
    fmt::print("\n{:<10} {:>14}\n", "SigV4", "µs a request");
    for (const Cost& cost : costs) fmt::print("{:<10} {:>14.2f}\n", cost.name, cost.microseconds);
}

void print_json(const Options& options, const std::vector<Way>& ways, const std::vector<Cost>& costs) {
    fmt::print("{{\"bench\": \"crc\", \"rounds\": {}, \"rows\": [", options.rounds);
    std::string_view separator = "";
    for (const Way& way : ways) {
        fmt::print(
            "{}\n  {{\"checksum\": \"{}\", \"path\": \"{}\", \"memory_gbps\": {:.3f}, \"cached_gbps\": {:.3f}, "
            "\"ratio\": {:.4f}}}",
            separator, way.name, way.path, way.memory_gbps(), way.cached_gbps(),
            way.memory_seconds / ways.front().memory_seconds);
        separator = ",";
    }
    fmt::print("\n], \"sigv4\": {{");
    separator = "";
    for (const Cost& cost : costs) {
        fmt::print("{}\"{}_us\": {:.3f}", separator, cost.name, cost.microseconds);
        separator = ", ";
    }
    fmt::print("}}}}\n");
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    std::vector<std::byte> memory(memory_bytes, std::byte{1});
    std::vector<std::byte> copy(memory_bytes, std::byte{2});
    std::vector<Way> ways = all_ways(copy.data());
    for (int round = 0; round < options.rounds; ++round) {
        for (Way& way : ways) measure(way, memory.data());
    }
    const auto costs = Signatures().measure(20 * options.rounds);
    if (options.json) {
        print_json(options, ways, costs);
    } else {
        print_table(ways, costs);
    }
    return 0;
}
