//! Texts that end a text: found across pieces, and never given out.

/// Passes pieces on, but holds back what may be the beginning of a stop string.
#[derive(Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<String>,
}

impl StopStrings {
    /// Watches for these texts; empty ones are none.
    pub fn new(stops: &[String]) -> StopStrings {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopStrings { stops, held: String::new(), found: None }
    }

    /// The stop string that came.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// What can be given out. The earliest stop string counts, of two at one place the longest.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let hits = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = hits.min_by_key(|(at, stop)| (*at, std::cmp::Reverse(stop.len()))) {
            self.found = Some(stop.clone());
            let mut text = std::mem::take(&mut self.held);
            text.truncate(at);
            return text;
        }
        let kept = self.stops.iter().map(|stop| beginning(&self.held, stop)).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, held)
    }

    /// What was held back when nothing follows.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// How many bytes at the end of `text` begin `stop`.
fn beginning(text: &str, stop: &str) -> usize {
    let ends = stop.char_indices().map(|(at, _)| at).rev().filter(|at| *at > 0);
    ends.into_iter().find(|at| stop.get(..*at).is_some_and(|begin| text.ends_with(begin))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut watcher = StopStrings::new(&stops.iter().map(|stop| stop.to_string()).collect::<Vec<_>>());
        let mut text = String::new();
        for piece in pieces {
            text += &watcher.push(piece);
            if watcher.found().is_some() {
                break;
            }
        }
        let rest = watcher.finish();
        (text + &rest, watcher.found().map(str::to_string))
    }

    #[test]
    fn stops_are_found_across_pieces_and_not_given_out() {
        assert_eq!(all(&["stop"], &["a s", "to", "p b"]), ("a ".into(), Some("stop".into())));
        assert_eq!(all(&["stop"], &["a st", "x"]), ("a stx".into(), None));
        assert_eq!(all(&["stop"], &["a sto"]), ("a sto".into(), None));
        assert_eq!(all(&["", "é!"], &["caf", "é", "!"]), ("caf".into(), Some("é!".into())));
    }

    #[test]
    fn the_earliest_counts_and_of_two_at_one_place_the_longest() {
        assert_eq!(all(&["b", "bc", "a"], &["xxbcxa"]), ("xx".into(), Some("bc".into())));
        assert_eq!(all(&[], &["abc"]), ("abc".into(), None));
    }
}
