// SPDX-License-Identifier: Apache-2.0
// Progress of long work on stderr: a line that changes where stderr is a terminal; elsewhere a line now and then, once
// the work has taken two seconds. Main thread only.
#pragma once

#include <chrono>
#include <string>

namespace kvern::cli {

class Progress {
  public:
    Progress();
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // Whether a text would be shown now: making one may cost more than the work that it tells of.
    bool due() const { return std::chrono::steady_clock::now() >= next_; }
    void show(const std::string& text);
    void clear();  // takes the line off a terminal, before something else is printed
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  private:
    const bool terminal_;
    bool shown_ = false;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point next_;
};

}  // namespace kvern::cli
