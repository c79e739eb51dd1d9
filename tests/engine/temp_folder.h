// SPDX-License-Identifier: Apache-2.0
// A folder of its own for a test, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kvern::testing {

class TempFolder {
  public:
    TempFolder() {
        std::string text = (std::filesystem::temp_directory_path() / "kvern-engine-XXXXXX").string();
        if (::mkdtemp(text.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << text;
        path_ = text;
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace kvern::testing
