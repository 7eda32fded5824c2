"""The experiments of Fang, Agarwal and Joachims (2019), a module for each table and figure."""
