// SPDX-License-Identifier: Apache-2.0
#include "cache/weights.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

namespace kvern {
namespace {

namespace fs = std::filesystem;

std::string pattern(std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
    return text;
}

std::string tensors(std::size_t size) {  // a tensor header of 16 bytes, then `size` - 16 bytes of tensors
    return std::string("\x10\0\0\0\0\0\0\0", 8) + pattern(size);
}

class Weights : public ::testing::Test {
  protected:
    Weights() {
        std::string text = (fs::temp_directory_path() / "kvern-weights-XXXXXX").string();
        root_ = ::mkdtemp(text.data()) ? text : std::string();
        fs::create_directories(model());
        write("config.json", R"({"a":1})");
        write("model-1.safetensors", tensors(300000));
        write("model-2.safetensors", pattern(7));
    }
    ~Weights() override {
        std::error_code ignored;
        fs::remove_all(root_, ignored);
    }
    std::string model() const { return root_ + "/model"; }
    std::string cache_file() const { return root_ + "/cache/weights.json"; }
    void write(const std::string& name, const std::string& bytes) const {
        std::ofstream(model() + "/" + name, std::ios::binary) << bytes;
    }
    std::string digest(const std::string& cache = {}) const {
        const auto result = weights_digest(model(), cache);
        return result ? *result : result.error().message;
    }
    std::string root_;
};

// The golden digests come from a program that shares no code with Kvern (docs/format.md, section 5).
TEST_F(Weights, GoldenDigests) {
    EXPECT_EQ(digest(), "a890f2fdccdfc0448a4edfddb01e0a8d5895d2c8ee12d7ac5db8e31ce6d0307d");
    const std::string snapshot = root_ + "/snapshots/0123abc";
    fs::create_directories(root_ + "/snapshots");
    fs::copy(model(), snapshot);
    for (const std::string& path : {snapshot, snapshot + "/", root_ + "/x/../snapshots/./0123abc/"}) {
        fs::create_directories(root_ + "/x");
        EXPECT_EQ(weights_digest(path, "").value(), "8c77ef2bc4e81686c8142d46df24e119ea3cdf3930c0ea550cda96fa430d4e92");
    }
    for (const auto& entry : fs::directory_iterator(model())) fs::remove(entry);
    write("m.gguf", pattern(100));
    EXPECT_EQ(digest(), "8cad1c4c72ad3d68b72a0b4dc75494d2d3b368414baef454544c27c7182967b9");
}

TEST_F(Weights, ACopyIsTheSameModel) {
    const std::string copy = root_ + "/copy";
    fs::copy(model(), copy);
    EXPECT_EQ(weights_digest(copy, "").value(), digest());
}

TEST_F(Weights, WhatIsNoWeightDoesNotCount) {
    const std::string before = digest();
    write("README.md", "x");
    write("pytorch_model.bin", "only counts where there are no safetensors");
    fs::create_directories(model() + "/folder.safetensors");
    EXPECT_EQ(digest(), before);
}

TEST_F(Weights, EveryChangeThatIsLookedAtChangesTheDigest) {
    std::set<std::string> seen{digest()};
    const auto changed = [&](const std::string& what, const std::function<void()>& change) {
        change();
        EXPECT_TRUE(seen.insert(digest()).second) << what;
    };
    changed("config", [&] { write("config.json", R"({"a":2})"); });
    changed("no config", [&] { fs::remove(model() + "/config.json"); });
    changed("size", [&] { write("model-2.safetensors", pattern(8)); });
    changed("name", [&] { fs::rename(model() + "/model-2.safetensors", model() + "/model-3.safetensors"); });
    changed("one more file", [&] { write("model-4.safetensors", pattern(7)); });
    std::string bytes = tensors(300000);
    // The file is small enough to be sampled whole: the tensor header, and any byte of the tensors.
    for (const std::size_t at :
         {std::size_t{3}, std::size_t{9}, std::size_t{24}, std::size_t{150000}, bytes.size() - 1})
        changed("byte " + std::to_string(at), [&] {
            bytes[at] ^= 1;
            write("model-1.safetensors", bytes);
        });
}

TEST_F(Weights, TheLastByteOfEachOfManyFilesCounts) {
    for (int i = 0; i < 70; ++i) write("part-" + std::to_string(i) + ".safetensors", pattern(10000));
    const std::string before = digest();
    std::string bytes = pattern(10000);
    bytes.back() ^= 1;
    write("part-33.safetensors", bytes);
    EXPECT_NE(digest(), before);
}

TEST_F(Weights, NoWeightsNamesTheOption) {
    for (const auto& entry : fs::directory_iterator(model())) fs::remove(entry);
    EXPECT_EQ(digest(),
              "model folder '" + model() + "' has no weights file; set model_id to name the weights yourself");
    fs::remove(model());
    EXPECT_EQ(digest(), "model folder '" + model() + "': No such file or directory");
}

TEST_F(Weights, AnUnreadableFileIsNamed) {
    write("model-0.safetensors", pattern(100));
    fs::permissions(model() + "/model-0.safetensors", fs::perms::none);
    if (::access((model() + "/model-0.safetensors").c_str(), R_OK) == 0)
        GTEST_SKIP() << "this user may read everything";
    EXPECT_EQ(digest(), "open '" + model() + "/model-0.safetensors': Permission denied");
}

// Replaces a file's bytes without a trace in its size, time and inode.
void rewrite_in_place(const std::string& path, const std::string& bytes) {
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    {
        std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
        stream << bytes;
    }
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST_F(Weights, TheCacheFileIsHonouredUntilTimeOrSizeChange) {
    const std::string file = model() + "/model-2.safetensors";
    const std::string first = digest(cache_file());
    EXPECT_TRUE(fs::exists(cache_file()));
    rewrite_in_place(file, "unseen!");
    EXPECT_EQ(digest(cache_file()), first) << "nothing is read where the cache file knows the files";
    const std::string real = digest();
    EXPECT_NE(real, first);
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    EXPECT_EQ(digest(cache_file()), real);
    write("model-2.safetensors", pattern(9));
    EXPECT_EQ(digest(cache_file()), digest());
    write("config.json", "{}");
    EXPECT_EQ(digest(cache_file()), digest());
}

TEST_F(Weights, TheCacheFileKeepsOtherModels) {
    const std::string other = root_ + "/other";
    fs::copy(model(), other);
    digest(cache_file());
    ASSERT_TRUE(weights_digest(other, cache_file()));
    const std::string file = model() + "/model-2.safetensors", before = digest();
    rewrite_in_place(file, "unseen!");
    EXPECT_EQ(digest(cache_file()), before);
}

TEST_F(Weights, ABrokenCacheFileIsOnlySlower) {
    const std::string right = digest();
    const std::string path = fs::path(model()).string();
    fs::create_directories(root_ + "/cache");
    for (const std::string& text :
         {std::string("{"), std::string("[]"), std::string("7"), std::string("\xff\xfe"), "{\"" + path + "\": 7}",
          "{\"" + path + "\": {\"signature\": 7, \"digest\": 8}}", "{\"" + path + "\": {\"signature\": \"x\"}}",
          "{\"" + path + "\": {\"digest\": []}}"}) {
        std::ofstream(cache_file()) << text;
        EXPECT_EQ(digest(cache_file()), right) << text;
        EXPECT_EQ(digest(cache_file()), right) << text;
    }
    EXPECT_EQ(digest("/proc/no/such/place/weights.json"), right);
    EXPECT_EQ(digest(root_), right) << "the cache file is a folder";
}

TEST_F(Weights, AnyFolderNameCanBeKept) {
    const std::string odd = root_ + "/\xff\xfe";
    fs::copy(model(), odd);
    EXPECT_EQ(weights_digest(odd, cache_file()).value(), digest());
}

std::uint64_t bytes_read_so_far() {
    std::ifstream stream("/proc/self/io");
    std::string name;
    std::uint64_t value = 0;
    while (stream >> name >> value)
        if (name == "rchar:") return value;
    return 0;
}

TEST_F(Weights, LargeFilesAreReadInPart) {
    if (bytes_read_so_far() == 0) GTEST_SKIP() << "no /proc/self/io here";
    for (int i = 0; i < 3; ++i) {
        const std::string name = "large-" + std::to_string(i) + ".safetensors";
        write(name, std::string("\xff\xff\xff\xff\xff\xff\0\0", 8));  // a tensor header that claims to be huge
        fs::resize_file(model() + "/" + name, std::uintmax_t{1} << 30);
    }
    const std::uint64_t before = bytes_read_so_far();
    ASSERT_EQ(digest().size(), 64U);
    EXPECT_LE(bytes_read_so_far() - before, (3U * 4 + 4 + 1) << 20)
        << "4 MiB of tensor header a file, 4 MiB of samples";
}

}  // namespace
}  // namespace kvern
