//! What is gone from the window.
