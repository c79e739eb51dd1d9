// SPDX-License-Identifier: Apache-2.0
#include "cache/weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "base/thread.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct File {
    std::string path, name;
    struct stat status {};
};

std::string length_prefix(std::uint64_t value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

void add_part(Sha256& sum, std::string_view part) {
    sum.update(length_prefix(part.size()));
    sum.update(part);
}

Result<std::string> read_at(int fd, const std::string& path, std::uint64_t offset, std::size_t size_bytes) {
    std::string bytes(size_bytes, '\0');
    std::size_t got = 0;
    while (got < size_bytes) {
        const ssize_t n = ::pread(fd, bytes.data() + got, size_bytes - got, static_cast<off_t>(offset + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tl::unexpected(error_from_errno(errno, fmt::format("read '{}'", path)));
        if (n == 0) return fail(ErrorCode::io, fmt::format("read '{}': it ends at {}", path, offset + got));
        got += static_cast<std::size_t>(n);
    }
    return bytes;
}

// The weights files, sorted by name: of the first kind that is there.
Result<std::vector<File>> weights_files(const std::string& directory) {
    static constexpr std::string_view kinds[][3] = {{".safetensors"}, {".bin", ".pt", ".pth"}, {".gguf"}};
    std::error_code error;
    std::vector<File> all;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
        File file{entry.path().string(), entry.path().filename().string(), {}};
        if (::stat(file.path.c_str(), &file.status) == 0 && S_ISREG(file.status.st_mode))
            all.push_back(std::move(file));
    }
    if (error) return fail(ErrorCode::io, fmt::format("model folder '{}': {}", directory, error.message()));
    for (const auto& kind : kinds) {
        std::vector<File> files;
        for (const File& file : all)
            if (std::any_of(std::begin(kind), std::end(kind),
                            [&](std::string_view end) { return !end.empty() && file.name.ends_with(end); }))
                files.push_back(file);
        if (files.empty()) continue;
        std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name < b.name; });
        return files;
    }
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("model folder '{}' has no weights file; set model_id to name the weights yourself", directory));
}

// Name, size, tensor header and samples of one file, as one string of hashed parts.
Result<Digest> file_digest(const File& file, std::size_t file_count) {
    const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tl::unexpected(error_from_errno(errno, fmt::format("open '{}'", file.path)));
    struct Closer {
        int fd;
        ~Closer() { ::close(fd); }
    } closer{fd};
    const auto size_bytes = static_cast<std::uint64_t>(file.status.st_size);
    Sha256 sum;
    add_part(sum, file.name);
    add_part(sum, length_prefix(size_bytes));
    if (file.name.ends_with(".safetensors") && size_bytes >= 8) {
        const auto prefix = read_at(fd, file.path, 0, 8);
        if (!prefix) return tl::unexpected(prefix.error());
        std::uint64_t header_bytes = 0;
        std::memcpy(&header_bytes, prefix->data(), 8);
        header_bytes = std::min({header_bytes, size_bytes - 8, std::uint64_t{4} << 20});
        const auto header = read_at(fd, file.path, 0, 8 + header_bytes);
        if (!header) return tl::unexpected(header.error());
        add_part(sum, *header);
    }
    const std::size_t most = limits::fingerprint_samples_bytes_max / limits::fingerprint_sample_bytes;
    const std::uint64_t sample_bytes =
        std::min<std::uint64_t>(size_bytes, file_count <= most ? limits::fingerprint_sample_bytes : limits::page_bytes);
    const std::size_t samples = std::max<std::size_t>(1, most / file_count);
    for (std::size_t i = 1; i <= samples; ++i) {
        const auto sample = read_at(fd, file.path, (size_bytes - sample_bytes) * i / samples, sample_bytes);
        if (!sample) return tl::unexpected(sample.error());
        add_part(sum, *sample);
    }
    return sum.finish();
}

Result<std::vector<Digest>> file_digests(const std::vector<File>& files) {
    std::vector<Result<Digest>> results(files.size(), Digest{});
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < files.size(); i = next++) results[i] = file_digest(files[i], files.size());
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min<std::size_t>(8, files.size()); ++i)
        threads.push_back(start_thread("kvern-weights", work));
    work();
    for (auto& thread : threads) thread.join();
    std::vector<Digest> digests;
    for (auto& result : results) {
        if (!result) return tl::unexpected(result.error());
        digests.push_back(*result);
    }
    return digests;
}

// A hub's snapshot folder is named by its commit.
std::string hub_commit(const std::string& directory) {
    const fs::path path = fs::path(directory).lexically_normal();
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    return folder.parent_path().filename() == "snapshots" ? folder.filename().string() : std::string();
}

// The text of a small file; empty if it can't be read. Does not throw, as an iterator over the stream would.
std::string read_text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return std::move(text).str();
}

// What must be unchanged for a cached digest to hold.
std::string signature(const std::vector<File>& files, const std::string& config) {
    Sha256 sum;
    add_part(sum, config);
    for (const File& file : files)
        add_part(sum, fmt::format("{} {} {} {} {}.{}", file.name, file.status.st_dev, file.status.st_ino,
                                  file.status.st_size, file.status.st_mtim.tv_sec, file.status.st_mtim.tv_nsec));
    const Digest digest = sum.finish();
    return to_hex(digest);
}

json read_cache(const std::string& cache_file) {
    json cache = json::parse(read_text(cache_file), nullptr, false);
    return cache.is_object() ? cache : json::object();
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Whole or not at all: several engines may start at once.
void write_cache(const std::string& cache_file, const json& cache) {
    std::error_code ignored;
    fs::create_directories(fs::path(cache_file).parent_path(), ignored);
    const std::string temporary = fmt::format("{}.{}", cache_file, ::getpid());
    std::ofstream(temporary) << cache.dump(1, ' ', true, json::error_handler_t::replace);
    std::error_code error;
    fs::rename(temporary, cache_file, error);
    if (error) fs::remove(temporary, ignored);
}

}  // namespace

std::string default_weights_cache() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
        return fmt::format("{}/kvern/weights.json", cache);
    if (const char* home = std::getenv("HOME"); home && *home) return fmt::format("{}/.cache/kvern/weights.json", home);
    return {};
}

Result<std::string> weights_digest(const std::string& directory, const std::string& cache_file) {
    const auto files = weights_files(directory);
    if (!files) return tl::unexpected(files.error());
    const std::string config = read_text(directory + "/config.json");
    const std::string now = signature(*files, config);
    const std::string path = fs::absolute(directory).lexically_normal().string();
    json cache = cache_file.empty() ? json::object() : read_cache(cache_file);
    if (const auto found = cache.find(path); found != cache.end() && found->is_object() &&
                                             text_of(*found, "signature") == now &&
                                             text_of(*found, "digest").size() == 64)
        return text_of(*found, "digest");
    const auto digests = file_digests(*files);
    if (!digests) return tl::unexpected(digests.error());
    Sha256 sum;
    add_part(sum, "kvern weights 1");
    add_part(sum, config);
    for (const Digest& digest : *digests) add_part(sum, {reinterpret_cast<const char*>(digest.data()), digest.size()});
    if (const auto commit = hub_commit(directory); !commit.empty()) add_part(sum, "commit " + commit);
    const std::string hex = to_hex(sum.finish());
    if (!cache_file.empty()) {
        cache[path] = {{"signature", now}, {"digest", hex}};
        write_cache(cache_file, cache);
    }
    return hex;
}

}  // namespace kvern
