"""What finished runs say: the terminal's table, CSV, figures. Works on plain records, knows no tracker."""
